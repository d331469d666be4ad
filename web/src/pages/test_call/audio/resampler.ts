/** Changes the sample rate of a stream by a polyphase filter (windowed sinc), block by block without a seam. */

/** Zero crossings of the sinc on each side, at the lower of both rates. */
const CROSSINGS = 16;
/** Of the band of the lower rate, which is kept. */
const PASSBAND = 0.94;

export class Resampler {
  readonly #phases: readonly Float32Array[];
  readonly #step: number;
  readonly #half: number;
  /** The last input, which the filter still reaches. */
  #tail: Float32Array;
  /** Place of the next output, in input samples divided by the number of phases, from the tail's begin. */
  #position: number;

  constructor(from: number, to: number) {
    const divisor = greatestCommonDivisor(from, to);
    const count = to / divisor;
    this.#step = from / divisor;
    const cutoff = Math.min(1, to / from) * PASSBAND;
    this.#half = Math.ceil(CROSSINGS / cutoff);
    this.#phases = Array.from({ length: count }, (_, phase) => kernel(phase / count, cutoff, this.#half));
    this.#tail = new Float32Array(2 * this.#half);
    this.#position = this.#half * count;
  }

  process(block: Float32Array): Float32Array<ArrayBuffer> {
    const count = this.#phases.length;
    const input = new Float32Array(this.#tail.length + block.length);
    input.set(this.#tail);
    input.set(block, this.#tail.length);
    const outputs = Math.max(0, Math.ceil(((input.length - this.#half) * count - this.#position) / this.#step));
    const output = new Float32Array(outputs);
    for (let index = 0; index < outputs; index += 1) {
      const at = Math.floor(this.#position / count);
      const phase = this.#phases[this.#position % count] as Float32Array;
      let sum = 0;
      for (let tap = 0; tap < phase.length; tap += 1) {
        sum += (phase[tap] as number) * (input[at - this.#half + 1 + tap] as number);
      }
      output[index] = sum;
      this.#position += this.#step;
    }
    const used = Math.max(0, Math.floor(this.#position / count) - this.#half);
    this.#tail = input.slice(used);
    this.#position -= used * count;
    return output;
  }
}

/** The weights of the samples around a place that is `fraction` of a sample after the middle one. */
function kernel(fraction: number, cutoff: number, half: number): Float32Array {
  const weights = new Float32Array(2 * half);
  let sum = 0;
  for (let tap = 0; tap < weights.length; tap += 1) {
    const distance = tap - half + 1 - fraction;
    const angle = Math.PI * distance * cutoff;
    const window = 0.5 + 0.5 * Math.cos((Math.PI * distance) / half);
    const weight = (angle === 0 ? 1 : Math.sin(angle) / angle) * (Math.abs(distance) < half ? window : 0);
    weights[tap] = weight;
    sum += weight;
  }
  return weights.map((weight) => weight / sum);
}

function greatestCommonDivisor(one: number, other: number): number {
  return other === 0 ? one : greatestCommonDivisor(other, one % other);
}
