/** One test call of this page: its microphone, its connection, and what is known of it. */

import { signal } from "@preact/signals";

import { ApiError, type Schemas, write } from "../../api/client";
import { t } from "../../texts";
import { CallAudio } from "./call_audio";
import { CallConnection, type ToolUse, type Turn, type Words } from "./call_connection";
import { MicrophoneError, type MicrophoneProblem } from "./microphone";

export type CallOrder = Schemas["WebCallCreate"];
export type Phase = "idle" | "starting" | "active" | "ending" | "ended";

/** A line of the conversation, in the order of its beginning. */
export type Line = { kind: "words"; words: Words } | { kind: "tool"; use: ToolUse };

const PLAYED_EVERY_MS = 1000;
const FRAMES_OF_A_LEVEL = 5;
const LAST_WORDS_MS = 500;

export class TestCall {
  readonly phase = signal<Phase>("idle");
  readonly microphoneProblem = signal<MicrophoneProblem | null>(null);
  /** The server's refusal; "" if there is none. */
  readonly refusal = signal("");
  readonly refusedFields = signal<Readonly<Record<string, string>>>({});
  readonly callId = signal<string | null>(null);
  readonly state = signal("");
  readonly lines = signal<readonly Line[]>([]);
  readonly turns = signal<readonly Turn[]>([]);
  readonly endedReason = signal<string | null>(null);
  readonly connectionLost = signal(false);
  readonly muted = signal(false);
  /** The id of the chosen microphone. */
  readonly microphone = signal("");
  /** Peaks of the microphone and of the agent, 0..1. */
  readonly levels = signal({ caller: 0, agent: 0 });
  /** ms since 1970. */
  readonly startedAt = signal<number | null>(null);

  #audio: CallAudio | null = null;
  #connection: CallConnection | null = null;
  #reportedMs = 0;
  #frames = 0;
  #peak = 0;
  /** The call that is being started or runs: what comes of an earlier one is dropped. */
  #attempt = 0;

  get isRunning(): boolean {
    return this.phase.value === "starting" || this.phase.value === "active" || this.phase.value === "ending";
  }

  async start(order: CallOrder): Promise<void> {
    if (this.isRunning) return;
    const attempt = this.#begin();
    try {
      const audio = await CallAudio.open(this.microphone.value, {
        onFrame: (frame, level) => this.#onMicrophone(frame, level),
        onPlayed: (ms, level) => this.#onPlayed(ms, level),
        onMicrophoneLost: () => this.#onMicrophoneLost(),
      });
      if (attempt !== this.#attempt) return audio.close();
      this.#audio = audio;
      const created = await write<Schemas["WebCallCreated"]>("POST", "/v1/calls/test", order);
      if (attempt !== this.#attempt) return hangUpUnconnected(created.call.id);
      this.callId.value = created.call.id;
      this.#connect(created.websocketUrl);
    } catch (error) {
      if (attempt !== this.#attempt) return;
      this.#fail(error);
    }
  }

  hangUp(): void {
    if (this.phase.value === "active") {
      this.phase.value = "ending";
      this.#connection?.hangUp();
    } else {
      this.leave();
    }
  }

  /** The page goes away: the microphone is free and the call ends, whatever was under way. */
  leave(): void {
    this.#attempt += 1;
    this.#connection?.close();
    this.#connection = null;
    this.#release();
    if (this.isRunning) this.phase.value = this.callId.value === null ? "idle" : "ended";
  }

  setMuted(on: boolean): void {
    this.muted.value = on;
    this.#audio?.mute(on);
  }

  /** Use another microphone now, if a call is under way, and in further calls; `""`: the browser's default. */
  async chooseMicrophone(id: string): Promise<void> {
    this.microphone.value = id;
    try {
      this.microphoneProblem.value = null;
      await this.#audio?.change(id);
    } catch (error) {
      if (!(error instanceof MicrophoneError)) throw error;
      this.microphoneProblem.value = error.problem;
    }
  }

  press(digits: string): void {
    this.#connection?.press(digits);
  }

  #begin(): number {
    this.phase.value = "starting";
    this.microphoneProblem.value = this.callId.value = this.endedReason.value = this.startedAt.value = null;
    this.refusal.value = this.state.value = "";
    this.refusedFields.value = {};
    this.lines.value = this.turns.value = [];
    this.connectionLost.value = this.muted.value = false;
    this.#reportedMs = 0;
    this.#attempt += 1;
    return this.#attempt;
  }

  #connect(address: string): void {
    this.#connection = new CallConnection(address, {
      onFrame: (frame) => {
        if (this.phase.value === "starting") {
          this.phase.value = "active";
          this.startedAt.value = Date.now();
        }
        this.#audio?.play(frame);
      },
      onClear: () => this.#audio?.clear(),
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
      onClosed: () => {
        this.#connection = null;
        this.connectionLost.value = this.endedReason.value === null;
        this.phase.value = "ended";
        this.#release(LAST_WORDS_MS);
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

  #onMicrophone(frame: ArrayBuffer, level: number): void {
    this.#connection?.sendFrame(frame);
    this.#peak = Math.max(this.#peak, level);
    this.#frames += 1;
    if (this.#frames % FRAMES_OF_A_LEVEL !== 0) return;
    this.levels.value = { ...this.levels.value, caller: this.#peak };
    this.#peak = 0;
  }

  #onPlayed(ms: number, level: number): void {
    this.levels.value = { ...this.levels.value, agent: level };
    if (ms - this.#reportedMs < PLAYED_EVERY_MS) return;
    this.#reportedMs = ms;
    this.#connection?.reportPlayed(ms);
  }

  #onMicrophoneLost(): void {
    this.microphoneProblem.value = "lost";
    this.hangUp();
  }

  #fail(error: unknown): void {
    this.#release();
    this.phase.value = "idle";
    if (error instanceof MicrophoneError) {
      this.microphoneProblem.value = error.problem;
    } else if (error instanceof ApiError) {
      this.refusal.value = error.status === 0 ? t.states.unreachable : error.message;
      this.refusedFields.value = Object.fromEntries(error.details.map(({ field, message }) => [field, message]));
    } else {
      this.refusal.value = t.testCall.noAudio;
    }
  }

  /** Release the microphone now, and the loudspeaker after what still waits for it. */
  #release(afterMs = 0): void {
    this.#audio?.close(afterMs);
    this.#audio = null;
    this.levels.value = { caller: 0, agent: 0 };
  }
}

function hangUpUnconnected(id: string): void {
  write("POST", `/v1/calls/${id}/hangup`).catch((error: unknown) => {
    if (!(error instanceof ApiError)) throw error; // the call ends by itself within a minute
  });
}
