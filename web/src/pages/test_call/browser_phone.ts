/** This page as the telephone of one call at a time: its microphone, its loudspeaker, and the call's WebSocket. */

import { signal } from "@preact/signals";

import { CallAudio } from "./call_audio";
import { CallConnection, type ConnectionEvents } from "./call_connection";
import { MicrophoneError, type MicrophoneProblem } from "./microphone";

const PLAYED_EVERY_MS = 1000;
const FRAMES_OF_A_LEVEL = 5;
const LAST_WORDS_MS = 500;
const SILENT = { own: 0, other: 0 };

export class BrowserPhone {
  /** The id of the chosen microphone; `""`: the browser's default. */
  readonly microphone = signal("");
  readonly microphoneProblem = signal<MicrophoneProblem | null>(null);
  /** The microphone and the loudspeaker are open. */
  readonly isOpen = signal(false);
  readonly muted = signal(false);
  /** Peaks of the microphone and of the other side, 0..1. */
  readonly levels = signal(SILENT);

  #audio: CallAudio | null = null;
  #connection: CallConnection | null = null;
  #reportedMs = 0;
  #frames = 0;
  #peak = 0;
  /** Counts the uses of the phone: a microphone that was opened for an earlier one is closed again. */
  #uses = 0;

  /** `onMicrophoneLost`: the microphone was unplugged, or taken away. */
  constructor(private readonly onMicrophoneLost: () => void) {}

  /** Open the microphone and the loudspeaker, not muted. Returns false if `release` was called meanwhile. Throws
   * `MicrophoneError`, which `microphoneProblem` tells, or the browser's error. */
  async open(): Promise<boolean> {
    this.release();
    const use = this.#uses;
    this.microphoneProblem.value = null;
    this.muted.value = false;
    this.#reportedMs = 0;
    try {
      const audio = await CallAudio.open(this.microphone.value, {
        onFrame: (frame, level) => this.#onFrame(frame, level),
        onPlayed: (ms, level) => this.#onPlayed(ms, level),
        onMicrophoneLost: () => {
          this.microphoneProblem.value = "lost";
          this.onMicrophoneLost();
        },
      });
      if (use !== this.#uses) {
        audio.close();
        return false;
      }
      audio.mute(this.muted.value);
      this.#audio = audio;
      this.isOpen.value = true;
      return true;
    } catch (error) {
      if (use !== this.#uses) return false;
      if (error instanceof MicrophoneError) this.microphoneProblem.value = error.problem;
      throw error;
    }
  }

  /** Connect with a call. */
  connect(address: string, events: ConnectionEvents): void {
    this.#connection = new CallConnection(address, {
      ...events,
      onFrame: (frame) => {
        events.onFrame(frame);
        this.#audio?.play(frame);
      },
      onClear: () => this.#audio?.clear(),
      onClosed: (refused) => {
        this.#connection = null;
        this.#closeAudio(LAST_WORDS_MS);
        events.onClosed(refused);
      },
    });
  }

  mute(on: boolean): void {
    this.muted.value = on;
    this.#audio?.mute(on);
  }

  /** Use another microphone now, if a call is under way, and in further calls. */
  async chooseMicrophone(id: string): Promise<void> {
    this.microphone.value = id;
    this.microphoneProblem.value = null;
    try {
      await this.#audio?.change(id);
    } catch (error) {
      if (!(error instanceof MicrophoneError)) throw error;
      this.microphoneProblem.value = error.problem;
    }
  }

  press(digits: string): void {
    this.#connection?.press(digits);
  }

  /** The server closes the connection afterwards. */
  hangUp(): void {
    this.#connection?.hangUp();
  }

  /** Close the connection and the microphone at once, whatever was under way. */
  release(): void {
    this.#uses += 1;
    this.#connection?.close();
    this.#connection = null;
    this.#closeAudio();
  }

  #onFrame(frame: ArrayBuffer, level: number): void {
    this.#connection?.sendFrame(frame);
    this.#peak = Math.max(this.#peak, level);
    this.#frames += 1;
    if (this.#frames % FRAMES_OF_A_LEVEL !== 0) return;
    this.levels.value = { ...this.levels.value, own: this.#peak };
    this.#peak = 0;
  }

  #onPlayed(ms: number, level: number): void {
    this.levels.value = { ...this.levels.value, other: level };
    if (ms - this.#reportedMs < PLAYED_EVERY_MS) return;
    this.#reportedMs = ms;
    this.#connection?.reportPlayed(ms);
  }

  /** Close the microphone now, and the loudspeaker after what still waits for it. */
  #closeAudio(afterMs = 0): void {
    this.#audio?.close(afterMs);
    this.#audio = null;
    this.isOpen.value = false;
    this.levels.value = SILENT;
  }
}
