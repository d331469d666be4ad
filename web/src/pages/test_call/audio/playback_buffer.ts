/** The agent's audio between the network, which is uneven, and the loudspeaker, which is not. */

const FIRST_TARGET_S = 0.06;
const MAX_TARGET_S = 0.3;
/** More delay after each time that the audio came too late. */
const GROWTH_S = 0.03;
/** Delay above the target from which silence is left out. */
const EXCESS_S = 0.08;
/** Delay above the target from which also speech is left out: the page stood still. */
const MAX_EXCESS_S = 1;
const SILENCE = 0.004;
/** Fade of what was cut, samples: a cut would click. */
const FADE = 128;

export class PlaybackBuffer {
  #blocks: Float32Array[] = [];
  /** Samples of the first block that were played. */
  #offset = 0;
  #waiting = 0;
  #filling = true;
  #target: number;
  #lastSample = 0;

  constructor(readonly rate: number) {
    this.#target = FIRST_TARGET_S * rate;
  }

  /** Samples that wait. */
  get waiting(): number {
    return this.#waiting;
  }

  push(block: Float32Array): void {
    const excess = this.#waiting - this.#target;
    if (excess > MAX_EXCESS_S * this.rate) this.clear();
    else if (excess > EXCESS_S * this.rate && isSilent(block)) return;
    this.#blocks.push(block);
    this.#waiting += block.length;
    if (this.#waiting >= this.#target) this.#filling = false;
  }

  /** Drop what waits. */
  clear(): void {
    this.#blocks = [];
    this.#offset = this.#waiting = 0;
    this.#filling = true;
  }

  /** Fill the output; where there is nothing, with silence. */
  pull(output: Float32Array): void {
    let written = 0;
    while (!this.#filling && written < output.length) {
      const block = this.#blocks[0];
      if (block === undefined) {
        this.#filling = true;
        this.#target = Math.min(this.#target + GROWTH_S * this.rate, MAX_TARGET_S * this.rate);
        break;
      }
      const part = block.subarray(this.#offset, this.#offset + output.length - written);
      output.set(part, written);
      written += part.length;
      this.#offset += part.length;
      this.#waiting -= part.length;
      if (this.#offset === block.length) {
        this.#blocks.shift();
        this.#offset = 0;
      }
    }
    this.#fadeOut(output, written);
  }

  #fadeOut(output: Float32Array, from: number): void {
    const start = from === 0 ? this.#lastSample : (output[from - 1] as number);
    for (let index = from; index < output.length; index += 1) {
      output[index] = start * Math.max(0, 1 - (index - from + 1) / FADE);
    }
    this.#lastSample = output[output.length - 1] as number;
  }
}

function isSilent(block: Float32Array): boolean {
  return block.every((sample) => Math.abs(sample) < SILENCE);
}
