/** Runs on the browser's audio thread: the microphone's sound as frames of the server, and its frames as sound. */

import { PlaybackBuffer } from "./playback_buffer";
import { Resampler } from "./resampler";

/** Rate of the server's frames, Hz, and samples of one. */
const RATE = 16000;
const FRAME = 320;
const REPORT_EVERY_S = 0.1;

/** Posts `{frame: ArrayBuffer, level: number}` for each 20 ms: s16le at 16 kHz and its peak, 0..1. */
class MicrophoneProcessor extends AudioWorkletProcessor {
  readonly #resampler = new Resampler(sampleRate, RATE);
  #frame = new Int16Array(FRAME);
  #filled = 0;
  #peak = 0;

  override process(inputs: Float32Array[][]): boolean {
    const channel = inputs[0]?.[0];
    if (channel === undefined) return true;
    for (const sample of this.#resampler.process(channel)) {
      const limited = Math.max(-1, Math.min(1, sample));
      this.#peak = Math.max(this.#peak, Math.abs(limited));
      this.#frame[this.#filled] = Math.round(limited * 32767);
      this.#filled += 1;
      if (this.#filled === FRAME) this.#post();
    }
    return true;
  }

  #post(): void {
    const { buffer } = this.#frame;
    this.port.postMessage({ frame: buffer, level: this.#peak }, [buffer]);
    this.#frame = new Int16Array(FRAME);
    this.#filled = 0;
    this.#peak = 0;
  }
}

/** Takes frames as ArrayBuffers, and `"clear"`; posts `{playedMs, level}`: the position in the received audio that is
 * being played, what was dropped included, and the peak of what was played since the last report. */
class PlaybackProcessor extends AudioWorkletProcessor {
  readonly #resampler = new Resampler(RATE, sampleRate);
  readonly #buffer = new PlaybackBuffer(sampleRate);
  #received = 0;
  #sinceReport = 0;
  #peak = 0;

  constructor() {
    super();
    this.port.onmessage = ({ data }: MessageEvent<ArrayBuffer | "clear">) => {
      if (data === "clear") this.#buffer.clear();
      else this.#take(new Int16Array(data));
    };
  }

  #take(frame: Int16Array): void {
    this.#received += frame.length;
    this.#buffer.push(this.#resampler.process(Float32Array.from(frame, (sample) => sample / 32768)));
  }

  override process(_inputs: Float32Array[][], outputs: Float32Array[][]): boolean {
    const output = outputs[0]?.[0];
    if (output === undefined) return true;
    this.#buffer.pull(output);
    for (const sample of output) this.#peak = Math.max(this.#peak, Math.abs(sample));
    this.#sinceReport += output.length;
    if (this.#sinceReport >= REPORT_EVERY_S * sampleRate) this.#report();
    return true;
  }

  #report(): void {
    const playedMs = Math.max(0, Math.round(1000 * (this.#received / RATE - this.#buffer.waiting / sampleRate)));
    this.port.postMessage({ playedMs, level: this.#peak });
    this.#sinceReport = 0;
    this.#peak = 0;
  }
}

registerProcessor("microphone", MicrophoneProcessor);
registerProcessor("playback", PlaybackProcessor);
