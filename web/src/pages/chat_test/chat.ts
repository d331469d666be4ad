/** One chat of this page with an agent: what was written and answered, and what goes on. */

import { signal } from "@preact/signals";

import { ApiError, get, type Schemas, write, writeAtLeave } from "../../api/client";
import { t } from "../../texts";
import { mayBeRedacted } from "../calls/transcript/redaction";

export type ChatOrder = Schemas["ChatCreate"];
export type Reply = Schemas["ChatMessage"];
type Call = Schemas["Call"];

export type Phase = "idle" | "opening" | "open" | "answering" | "ended";

/** A turn of the user. */
export interface Turn {
  number: number;
  content: string;
  /** Null: the agent has not answered, or the page does not know its answer. */
  reply: Reply | null;
}

/** Messages whose answer may come later have these statuses: the server was too slow, or the connection was lost. */
const ANSWER_MAY_COME = [0, 503, 504];

export class Chat {
  readonly phase = signal<Phase>("idle");
  readonly callId = signal<string | null>(null);
  /** What the agent said first. */
  readonly opening = signal<readonly string[]>([]);
  readonly turns = signal<readonly Turn[]>([]);
  /** The number of the turn that is being edited, and its words so far. */
  readonly edited = signal<number | null>(null);
  readonly editedText = signal("");
  readonly endedReason = signal<string | null>(null);
  /** What is wrong; "" if nothing is. */
  readonly problem = signal("");
  /** What the server says is wrong with each field of the order. */
  readonly refusedFields = signal<Readonly<Record<string, string>>>({});

  /** The chat that is being opened or open: what comes of an earlier one is dropped. */
  #attempt = 0;

  get isOpen(): boolean {
    return this.phase.value === "open" || this.phase.value === "answering";
  }

  async start(order: ChatOrder): Promise<void> {
    if (this.isOpen || this.phase.value === "opening") return;
    const attempt = this.#begin();
    try {
      const call = await write<Call>("POST", "/v1/calls/chat", order);
      if (attempt !== this.#attempt) return hangUp(call.id);
      this.callId.value = call.id;
      this.opening.value = wordsOf(call.transcript, "assistant");
      this.phase.value = "open";
    } catch (error) {
      if (attempt !== this.#attempt) return;
      this.#tell(error);
      this.phase.value = "idle";
    }
  }

  edit(turn: Turn): void {
    this.edited.value = turn.number;
    this.editedText.value = turn.content;
  }

  /** Send a message, in place of an earlier turn if that is edited. Returns whether the server has taken it. */
  async send(content: string): Promise<boolean> {
    const id = this.callId.value;
    if (this.phase.value !== "open" || id === null) return false;
    const before = this.turns.value;
    const edited = this.edited.value;
    const number = edited ?? (before.at(-1)?.number ?? 0) + 1;
    const attempt = this.#attempt;
    this.#forgetProblem();
    this.edited.value = null;
    this.turns.value = [...before.filter((each) => each.number < number), { number, content, reply: null }];
    this.phase.value = "answering";
    try {
      const body = edited === null ? { content } : { content, editTurn: edited };
      const reply = await write<Reply>("POST", `/v1/calls/${id}/messages`, body);
      if (attempt !== this.#attempt) return true;
      this.#answered({ number: reply.turn, content, reply });
      if (reply.ended) {
        this.phase.value = "ended";
        await this.#findEnd(id);
      }
      return true;
    } catch (error) {
      if (attempt !== this.#attempt) return false;
      this.#tell(error);
      if (this.phase.value === "answering") this.phase.value = "open";
      if (error instanceof ApiError && ANSWER_MAY_COME.includes(error.status)) return true;
      this.turns.value = before;
      this.edited.value = edited;
      if (error instanceof ApiError && error.status === 409) await this.#findEnd(id);
      return false;
    }
  }

  /** Look for an answer that had not come in time; the server stores it a second later. */
  async lookAgain(): Promise<void> {
    const id = this.callId.value;
    const last = this.turns.value.at(-1);
    if (id === null || last === undefined) return;
    const attempt = this.#attempt;
    this.#forgetProblem();
    try {
      const call = await get<Call>(`/v1/calls/${id}`);
      if (attempt !== this.#attempt) return;
      const at = call.transcript.findLastIndex((item) => item.role === "user");
      const content = wordsOf(call.transcript.slice(at + 1), "assistant").join(" ");
      // An edited turn has the number of the one that it replaces, whose answer may still be stored.
      const isSame = call.turnCount === last.number && mayBeRedacted(call.transcript[at]?.content ?? "", last.content);
      if (isSame && content !== "") {
        this.#answered({ ...last, reply: laterReply(last.number, content) });
      } else {
        this.problem.value = t.chatTest.noAnswerYet;
      }
      this.onCall(call);
    } catch (error) {
      this.#tell(error);
    }
  }

  async end(): Promise<void> {
    const id = this.callId.value;
    if (!this.isOpen || id === null) return;
    this.#forgetProblem();
    try {
      this.onCall(await write<Call>("POST", `/v1/calls/${id}/hangup`));
    } catch (error) {
      this.#tell(error);
      await this.#findEnd(id);
    }
  }

  /** The page goes away: the chat ends, whatever is under way. */
  leave(): void {
    this.#attempt += 1;
    const id = this.callId.value;
    if (this.isOpen && id !== null) hangUp(id);
    this.phase.value = this.isOpen ? "ended" : this.phase.value === "opening" ? "idle" : this.phase.value;
  }

  /** What is known of a call: perhaps this one has ended. */
  onCall(call: Pick<Call, "id" | "state" | "endedReason">): void {
    if (call.id !== this.callId.value || call.state !== "ended") return;
    this.endedReason.value ??= call.endedReason;
    if (!this.isOpen) return;
    this.problem.value = "";
    this.edited.value = null;
    this.phase.value = "ended";
  }

  #begin(): number {
    this.#forgetProblem();
    this.phase.value = "opening";
    this.callId.value = this.edited.value = this.endedReason.value = null;
    this.opening.value = [];
    this.turns.value = [];
    this.#attempt += 1;
    return this.#attempt;
  }

  #answered(turn: Turn): void {
    this.turns.value = [...this.turns.value.filter((each) => each.number < turn.number), turn];
    if (this.phase.value === "answering") this.phase.value = "open";
  }

  async #findEnd(id: string): Promise<void> {
    try {
      this.onCall(await get<Call>(`/v1/calls/${id}`));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
  }

  #forgetProblem(): void {
    this.problem.value = "";
    this.refusedFields.value = {};
  }

  #tell(error: unknown): void {
    if (!(error instanceof ApiError)) throw error;
    this.problem.value = error.status === 0 ? t.states.unreachable : error.message;
    this.refusedFields.value = Object.fromEntries(error.details.map(({ field, message }) => [field, message]));
  }
}

function wordsOf(items: Call["transcript"], role: string): string[] {
  return items.flatMap((item) => (item.role === role ? [item.content] : []));
}

function laterReply(turn: number, content: string): Reply {
  return { turn, content, responseGapMs: null, durationMs: 0, tools: [], sources: [], ended: false };
}

function hangUp(id: string): void {
  writeAtLeave("POST", `/v1/calls/${id}/hangup`).catch((error: unknown) => {
    if (!(error instanceof ApiError)) throw error; // the chat ends by itself when nothing more is written
  });
}
