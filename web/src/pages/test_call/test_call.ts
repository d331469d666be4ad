/** One test call of this page: its microphone, its connection, and what is known of it. */

import { signal } from "@preact/signals";

import { ApiError, type Schemas, write, writeAtLeave } from "../../api/client";
import { t } from "../../texts";
import { BrowserPhone } from "./browser_phone";
import type { ToolUse, Turn, Words } from "./call_connection";
import { MicrophoneError } from "./microphone";

export type CallOrder = Schemas["WebCallCreate"];
export type Phase = "idle" | "starting" | "active" | "ending" | "ended";

/** A line of the conversation, in the order of its beginning. */
export type Line = { kind: "words"; words: Words } | { kind: "tool"; use: ToolUse };

export class TestCall {
  readonly phone = new BrowserPhone(() => this.hangUp());
  readonly phase = signal<Phase>("idle");
  /** The server's refusal; "" if there is none. */
  readonly refusal = signal("");
  readonly refusedFields = signal<Readonly<Record<string, string>>>({});
  readonly callId = signal<string | null>(null);
  readonly state = signal("");
  readonly lines = signal<readonly Line[]>([]);
  readonly turns = signal<readonly Turn[]>([]);
  readonly endedReason = signal<string | null>(null);
  readonly connectionLost = signal(false);
  /** ms since 1970. */
  readonly startedAt = signal<number | null>(null);

  /** The call that is being started or runs: what comes of an earlier one is dropped. */
  #attempt = 0;

  get isRunning(): boolean {
    return this.phase.value === "starting" || this.phase.value === "active" || this.phase.value === "ending";
  }

  async start(order: CallOrder): Promise<void> {
    if (this.isRunning) return;
    const attempt = this.#begin();
    try {
      if (!(await this.phone.open())) return;
      const created = await write<Schemas["WebCallCreated"]>("POST", "/v1/calls/test", order);
      const { id } = created.call;
      if (attempt !== this.#attempt) return hangUpUnconnected(id);
      this.callId.value = id;
      this.#connect(id, created.websocketUrl);
    } catch (error) {
      if (attempt !== this.#attempt) return;
      this.#fail(error);
    }
  }

  hangUp(): void {
    if (this.phase.value === "active") {
      this.phase.value = "ending";
      this.phone.hangUp();
    } else {
      this.leave();
    }
  }

  /** The page goes away: the microphone is free and the call ends, whatever was under way. */
  leave(): void {
    this.#attempt += 1;
    this.phone.release();
    if (this.phase.value === "starting" && this.callId.value !== null) hangUpUnconnected(this.callId.value);
    if (this.isRunning) this.phase.value = this.callId.value === null ? "idle" : "ended";
  }

  #begin(): number {
    this.phase.value = "starting";
    this.callId.value = this.endedReason.value = this.startedAt.value = null;
    this.refusal.value = this.state.value = "";
    this.refusedFields.value = {};
    this.lines.value = this.turns.value = [];
    this.connectionLost.value = false;
    this.#attempt += 1;
    return this.#attempt;
  }

  #connect(id: string, address: string): void {
    this.phone.connect(address, {
      onFrame: () => {
        if (this.phase.value !== "starting") return;
        this.phase.value = "active";
        this.startedAt.value = Date.now();
      },
      onState: (state) => {
        this.state.value = state;
      },
      onWords: (words) => this.#addWords(words),
      onTurn: (turn) => {
        this.turns.value = [...this.turns.value.filter((each) => each.turn !== turn.turn), turn];
      },
      onTool: (use) => this.#addTool(use),
      onEnded: (reason) => {
        this.endedReason.value = reason;
      },
      onClosed: (refused) => {
        if (refused) {
          hangUpUnconnected(id);
          this.refusal.value = t.states.noWebSocket;
          this.phase.value = "idle";
          return;
        }
        this.connectionLost.value = this.endedReason.value === null;
        this.phase.value = "ended";
      },
    });
  }

  /** Words take the place of those of the same speaker that were not final. */
  #addWords(words: Words): void {
    const others = this.lines.value.filter(
      (line) => !(line.kind === "words" && !line.words.final && line.words.role === words.role),
    );
    this.lines.value = [...others, { kind: "words", words }];
  }

  #addTool(use: ToolUse): void {
    const known = this.lines.value.some((line) => line.kind === "tool" && line.use.id === use.id);
    this.lines.value = known
      ? this.lines.value.map((line) => (line.kind === "tool" && line.use.id === use.id ? { kind: "tool", use } : line))
      : [...this.lines.value, { kind: "tool", use }];
  }

  #fail(error: unknown): void {
    this.phone.release();
    this.phase.value = "idle";
    if (error instanceof MicrophoneError) return; // the phone tells it
    if (error instanceof ApiError) {
      this.refusal.value = error.status === 0 ? t.states.unreachable : error.message;
      this.refusedFields.value = Object.fromEntries(error.details.map(({ field, message }) => [field, message]));
    } else {
      this.refusal.value = t.testCall.noAudio;
    }
  }
}

function hangUpUnconnected(id: string): void {
  writeAtLeave("POST", `/v1/calls/${id}/hangup`).catch((error: unknown) => {
    if (!(error instanceof ApiError)) throw error; // the call ends by itself within a minute
  });
}
