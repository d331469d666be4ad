/** Taking a live call over from its agent: this page's microphone and loudspeaker in the agent's place. */

import { signal } from "@preact/signals";

import { ApiError, get, type Schemas, write } from "../../../api/client";
import { t } from "../../../texts";
import { BrowserPhone } from "../../test_call/browser_phone";
import { MicrophoneError } from "../../test_call/microphone";

export type TakeoverPhase = "idle" | "starting" | "talking" | "over";

export class Takeover {
  readonly phone = new BrowserPhone(() => this.hangUp());
  readonly phase = signal<TakeoverPhase>("idle");
  /** Why it did not begin; "" if nothing is wrong, or if the phone tells it. */
  readonly problem = signal("");
  readonly connectionLost = signal(false);

  #ended = false;
  /** The takeover that is being started or runs: what comes of an earlier one is dropped. */
  #attempt = 0;

  /** The microphone comes first: without one the agent keeps the call. */
  async start(callId: string): Promise<void> {
    if (this.phase.value === "starting" || this.phase.value === "talking") return;
    this.phase.value = "starting";
    this.problem.value = "";
    this.connectionLost.value = this.#ended = false;
    this.#attempt += 1;
    const attempt = this.#attempt;
    try {
      if (!(await this.phone.open())) return;
      const taken = await write<Schemas["WebCallCreated"]>("POST", `/v1/calls/${callId}/takeover`);
      if (attempt === this.#attempt) this.#connect(callId, taken.websocketUrl);
    } catch (error) {
      if (attempt === this.#attempt) this.#fail(error);
    }
  }

  hangUp(): void {
    if (this.phase.value === "talking") this.phone.hangUp();
    else this.leave();
  }

  /** The page goes away, and the call ends if it was taken over. */
  leave(): void {
    this.#attempt += 1;
    this.phone.release();
    this.phase.value = this.phase.value === "talking" ? "over" : "idle";
  }

  #connect(callId: string, address: string): void {
    this.phone.connect(address, {
      onFrame: () => {
        this.phase.value = "talking";
      },
      onEnded: () => {
        this.#ended = true;
      },
      onClosed: (refused) => {
        if (refused) {
          this.phase.value = "idle";
          void this.#explain(callId);
        } else {
          this.connectionLost.value = !this.#ended;
          this.phase.value = "over";
        }
      },
    });
  }

  /** A browser does not tell a page why a WebSocket was refused: the call has ended, or a proxy has refused it. */
  async #explain(callId: string): Promise<void> {
    try {
      const call = await get<Schemas["Call"]>(`/v1/calls/${callId}`);
      this.problem.value = call.endedReason === null ? t.states.noWebSocket : t.call.live.takeOverRefused;
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    this.phone.release();
    this.phase.value = "idle";
    if (error instanceof MicrophoneError) return; // the phone tells it
    if (error instanceof ApiError) this.problem.value = error.message || t.states.unreachable;
    else this.problem.value = t.testCall.noAudio;
  }
}
