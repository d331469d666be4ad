/** Taking a live call over from its agent: this page's microphone and loudspeaker in the agent's place. */

import { signal } from "@preact/signals";

import { ApiError, type Schemas, write } from "../../../api/client";
import { t } from "../../../texts";
import { CallAudio } from "../../test_call/call_audio";
import { CallConnection } from "../../test_call/call_connection";
import { MicrophoneError } from "../../test_call/microphone";

export type TakeoverPhase = "idle" | "starting" | "talking" | "over";

const LAST_SOUND_MS = 300;

export class Takeover {
  readonly phase = signal<TakeoverPhase>("idle");
  readonly muted = signal(false);
  /** Why it did not begin; "" if nothing is wrong. */
  readonly problem = signal("");

  #audio: CallAudio | null = null;
  #connection: CallConnection | null = null;
  #left = false;

  /** The microphone comes first: without one the agent keeps the call. */
  async start(callId: string): Promise<void> {
    if (this.phase.value === "starting" || this.phase.value === "talking") return;
    this.phase.value = "starting";
    this.problem.value = "";
    this.muted.value = this.#left = false;
    try {
      const audio = await CallAudio.open("", {
        onFrame: (frame) => this.#connection?.sendFrame(frame),
        onPlayed: () => {},
        onMicrophoneLost: () => this.hangUp(),
      });
      this.#audio = audio;
      if (this.#left) return this.leave();
      const taken = await write<Schemas["WebCallCreated"]>("POST", `/v1/calls/${callId}/takeover`);
      if (this.#left) return this.leave();
      this.#connect(taken.websocketUrl);
    } catch (error) {
      this.#release();
      this.phase.value = "idle";
      if (error instanceof MicrophoneError) this.problem.value = t.testCall.microphoneProblems[error.problem];
      else if (error instanceof ApiError) this.problem.value = error.message || t.states.unreachable;
      else throw error;
    }
  }

  mute(on: boolean): void {
    this.muted.value = on;
    this.#audio?.mute(on);
  }

  press(digits: string): void {
    this.#connection?.press(digits);
  }

  hangUp(): void {
    if (this.phase.value === "talking") this.#connection?.hangUp();
    else this.leave();
  }

  /** The page goes away, and the call ends if it was taken over. */
  leave(): void {
    this.#left = true;
    this.#connection?.close();
    this.#connection = null;
    this.#release();
    this.phase.value = this.phase.value === "talking" ? "over" : "idle";
  }

  #connect(address: string): void {
    this.#connection = new CallConnection(address, {
      onFrame: (frame) => {
        this.phase.value = "talking";
        this.#audio?.play(frame);
      },
      onClear: () => this.#audio?.clear(),
      onState: () => {},
      onWords: () => {},
      onTurn: () => {},
      onTool: () => {},
      onEnded: () => {},
      onClosed: (refused) => {
        this.#connection = null;
        this.#release(LAST_SOUND_MS);
        this.phase.value = refused ? "idle" : "over";
        if (refused) this.problem.value = t.call.live.takeOverRefused;
      },
    });
  }

  #release(afterMs = 0): void {
    this.#audio?.close(afterMs);
    this.#audio = null;
  }
}
