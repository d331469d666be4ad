/** The page's sound: from the microphone in frames, and frames to the loudspeaker. */

import { MicrophoneError, openMicrophone, stop } from "./microphone";

const WORKLET = "/assets/worklet.js";

export interface AudioEvents {
  /** 20 ms of the microphone, s16le at 16 kHz, and its peak, 0..1. */
  onFrame: (frame: ArrayBuffer, level: number) => void;
  /** The position in the received audio that is being played, ms, and the peak of what was just played. */
  onPlayed: (ms: number, level: number) => void;
  /** The microphone was unplugged, or taken away. */
  onMicrophoneLost: () => void;
}

export class CallAudio {
  #source: MediaStreamAudioSourceNode | null = null;
  #muted = false;
  /** Counts the changes of the microphone: one that was overtaken, also by the end, is dropped. */
  #changes = 0;

  private constructor(
    private readonly context: AudioContext,
    private readonly input: AudioWorkletNode,
    private readonly output: AudioWorkletNode,
    private readonly events: AudioEvents,
  ) {
    input.port.onmessage = ({ data }) => events.onFrame(data.frame, data.level);
    output.port.onmessage = ({ data }) => events.onPlayed(data.playedMs, data.level);
    output.connect(context.destination);
  }

  /** Open the microphone and the loudspeaker. Throws `MicrophoneError`. */
  static async open(microphone: string, events: AudioEvents): Promise<CallAudio> {
    const stream = await openMicrophone(microphone);
    let context: AudioContext | null = null;
    try {
      context = new AudioContext({ latencyHint: "interactive" });
      await context.audioWorklet.addModule(WORKLET);
      await context.resume();
      const input = new AudioWorkletNode(context, "microphone", { numberOfOutputs: 0 });
      const output = new AudioWorkletNode(context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
      const audio = new CallAudio(context, input, output, events);
      audio.#use(stream);
      return audio;
    } catch (error) {
      stop(stream);
      await context?.close();
      throw error;
    }
  }

  /** Go over to another microphone. Throws `MicrophoneError`: then the present one stays. */
  async change(microphone: string): Promise<void> {
    this.#changes += 1;
    const change = this.#changes;
    const stream = await openMicrophone(microphone).catch((error: unknown) => {
      if (change === this.#changes) throw error;
      return null;
    });
    if (stream === null) return;
    if (change === this.#changes) this.#use(stream);
    else stop(stream);
  }

  /** A muted microphone gives silence. */
  mute(on: boolean): void {
    this.#muted = on;
    for (const track of this.#source?.mediaStream.getTracks() ?? []) track.enabled = !on;
  }

  play(frame: ArrayBuffer): void {
    this.output.port.postMessage(frame, [frame]);
  }

  /** Drop what was not played yet. */
  clear(): void {
    this.output.port.postMessage("clear");
  }

  /** Release the microphone now, and the loudspeaker after a time. */
  close(afterMs = 0): void {
    this.#changes += 1;
    this.#stopMicrophone();
    this.input.port.onmessage = this.output.port.onmessage = null;
    setTimeout(() => void this.context.close(), afterMs);
  }

  /** Use a microphone instead of the present one. Throws `MicrophoneError`: then it is off, and the present one stays. */
  #use(stream: MediaStream): void {
    const source = this.#sourceOf(stream);
    this.#stopMicrophone();
    this.#source = source;
    source.connect(this.input);
    for (const track of stream.getTracks()) {
      track.enabled = !this.#muted;
      track.onended = this.events.onMicrophoneLost;
    }
  }

  #sourceOf(stream: MediaStream): MediaStreamAudioSourceNode {
    try {
      return this.context.createMediaStreamSource(stream);
    } catch {
      stop(stream);
      throw new MicrophoneError("failed");
    }
  }

  #stopMicrophone(): void {
    if (this.#source === null) return;
    this.#source.disconnect();
    stop(this.#source.mediaStream);
    this.#source = null;
  }
}
