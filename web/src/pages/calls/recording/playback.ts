/** The position in a call's recording, which the player moves and the transcript and the turns follow. */

import { signal } from "@preact/signals";

export class Playback {
  /** Seconds since the recording's beginning. */
  readonly position = signal(0);
  readonly playing = signal(false);
  readonly duration = signal(0);
  /** The recording cannot be loaded or decoded. */
  readonly failed = signal(false);
  private audio: HTMLAudioElement | null = null;

  constructor(private start: number) {
    this.position.value = start;
  }

  /** Take over the audio element that plays the recording. Returns the function that lets go of it. */
  attach(audio: HTMLAudioElement): () => void {
    this.audio = audio;
    this.failed.value = audio.error !== null;
    const listeners = new AbortController();
    const on = (event: string, listener: () => void) =>
      audio.addEventListener(event, listener, { signal: listeners.signal });
    on("timeupdate", () => {
      this.position.value = audio.currentTime;
    });
    on("play", () => {
      this.playing.value = true;
      this.follow();
    });
    on("pause", () => {
      this.playing.value = false;
    });
    on("error", () => {
      this.failed.value = true;
    });
    on("loadedmetadata", () => {
      this.failed.value = false;
      this.duration.value = audio.duration;
      if (this.start > 0) audio.currentTime = Math.min(this.start, audio.duration);
    });
    return () => {
      listeners.abort();
      audio.pause();
      this.audio = null;
    };
  }

  seek(seconds: number): void {
    this.start = seconds;
    this.position.value = seconds;
    if (this.audio) this.audio.currentTime = seconds;
  }

  async toggle(): Promise<void> {
    if (!this.audio?.paused) return this.audio?.pause();
    try {
      await this.audio.play();
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
      this.failed.value = error.name !== "AbortError"; // a pause before the begin is no failure
    }
  }

  /** Load the recording again. */
  retry(): void {
    this.failed.value = false;
    this.audio?.load();
  }

  setSpeed(factor: number): void {
    if (this.audio) this.audio.playbackRate = factor;
  }

  /** The position at each frame of the screen; the element itself reports it four times a second. */
  private follow(): void {
    if (this.audio === null || this.audio.paused) return;
    this.position.value = this.audio.currentTime;
    requestAnimationFrame(() => this.follow());
  }
}
