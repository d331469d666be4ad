/** The live calls that the page shows. Events are applied once for each picture that the browser draws, and each call is
 * a signal of its own, so that a change draws one row. */

import { batch, type Signal, signal } from "@preact/signals";

import { everything, type Schemas } from "../../api/client";
import { isChat } from "../calls/kind";

export type Call = Schemas["CallListItem"];

const STATUSES = ["queued", "ringing", "in_progress"] as const;
/** How long a call that has ended stays, so that its end is seen. */
const ENDED_SHOWN_MS = 4000;

export class LiveCalls {
  /** The ids of the calls, newest first. */
  readonly ids = signal<readonly string[]>([]);
  private readonly calls = new Map<string, Signal<Call>>();
  private readonly pending = new Map<string, Call>();
  private scheduled = 0;
  /** What events tell while all calls are loaded: it is newer than what is loaded. */
  private duringLoad: Map<string, Call> | null = null;

  /** Load all live calls. Throws `ApiError`. */
  async load(signal: AbortSignal): Promise<void> {
    const newer = new Map<string, Call>();
    this.duringLoad = newer;
    const found = await Promise.all(STATUSES.map((status) => everything<Call>("/v1/calls", signal, { status })));
    batch(() => {
      this.calls.clear();
      this.ids.value = [];
      for (const call of found.flat()) {
        if (call.state !== "ended" && !isChat(call)) this.put(call);
      }
      this.sort();
    });
    this.duringLoad = null;
    for (const call of newer.values()) this.update(call);
  }

  of(id: string): Signal<Call> | undefined {
    return this.calls.get(id);
  }

  /** A call has begun, changed or ended. A chat is none that is live: it has no sound, and takes no place of a call. */
  update(call: Call): void {
    if (isChat(call)) return;
    this.pending.set(call.id, call);
    this.duringLoad?.set(call.id, call);
    this.scheduled ||= requestAnimationFrame(() => this.apply());
  }

  private apply(): void {
    this.scheduled = 0;
    batch(() => {
      for (const call of this.pending.values()) {
        if (call.state !== "ended" || this.calls.has(call.id)) this.put(call);
        if (call.state === "ended") setTimeout(() => this.remove(call.id), ENDED_SHOWN_MS);
      }
      this.pending.clear();
      if (this.ids.value.length !== this.calls.size) this.sort();
    });
  }

  private put(call: Call): void {
    const known = this.calls.get(call.id);
    if (known === undefined) this.calls.set(call.id, signal(call));
    else known.value = call;
  }

  private remove(id: string): void {
    this.calls.delete(id);
    this.sort();
  }

  private sort(): void {
    const created = (id: string) => this.calls.get(id)?.peek().createdAt ?? "";
    this.ids.value = [...this.calls.keys()].sort((one, other) => created(other).localeCompare(created(one)));
  }
}
