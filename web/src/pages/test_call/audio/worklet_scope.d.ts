/** The audio thread's scope (Web Audio API, 1.32), which TypeScript's library does not have. */

declare abstract class AudioWorkletProcessor {
  readonly port: MessagePort;
  abstract process(inputs: Float32Array[][], outputs: Float32Array[][]): boolean;
}

declare function registerProcessor(name: string, processor: new () => AudioWorkletProcessor): void;

/** Hz. */
declare const sampleRate: number;
