/** What happens on the server, by one stream of events for the whole tab: it is open while something on the page follows
 * it and the tab can be seen, and goes on where it was cut. */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { ApiError, openStream, type Schemas } from "./client";
import { serverEvents } from "./event_stream";
import { reloadUnanswered } from "./resource";

type Call = Schemas["CallListItem"];

/** A finished turn of a call. */
export type LiveTurn = Schemas["TranscriptItem"] & {
  callId: string;
  sequence: number;
  interrupted: boolean;
  turn: Schemas["TurnTimes"];
};

/** What each event tells. */
export interface Events {
  "call.created": Call;
  "call.updated": Call;
  "call.ended": Call;
  "call.turn": LiveTurn;
  "call.refused": Schemas["RefusedCall"];
  "transfer.updated": Schemas["TransferCall"] & { callId: string };
  "number.updated": Schemas["PhoneNumber"] | Schemas["Deleted"];
  "document.updated": Schemas["KnowledgeDocument"] | Schemas["Deleted"];
  "capacity.updated": Schemas["Capacity"];
}

/** What is done at each event. `resync`: events were missed, and what is shown must be loaded again. */
export type Followers = { [name in keyof Events]?: (data: Events[name]) => void } & { resync?: () => void };

export type Connection = "connecting" | "open" | "lost";

const PATH = "/api/events";
/** How long a list, which is of use without events, too, waits for them. */
export const LIST_PATIENCE_MS = 300;
const RETRY_MS = 1000;
const MAX_RETRY_MS = 15_000;
/** How long a hidden tab, or one without followers, keeps the stream. */
const LINGER_MS = 5000;
/** How long a page waits for the stream before it loads what it shows without it. */
const PATIENCE_MS = 1500;
/** A stream without even a comment for so long is broken. */
const SILENCE_MS = 40_000;

/** Whether events arrive now. */
export const connection = signal<Connection>("connecting");

const followers = new Set<Followers>();
/** Something was loaded while no events arrived. */
let loadedBefore = false;
let lastEventId = "";
let running: AbortController | null = null;
let lingering: ReturnType<typeof setTimeout> | undefined;
const opened: (() => void)[] = [];

/** Do something at each event while a component is shown. */
export function useEvents(handlers: Followers): void {
  const own = useRef<Followers>({}).current;
  Object.assign(own, handlers);
  useEffect(() => {
    followers.add(own);
    update();
    return () => {
      followers.delete(own);
      update();
    };
  }, []);
}

/** Resolves when events arrive, so that nothing is missed between loading and following; after `patienceMs` in any
 * case: then there is a `resync` once they arrive. */
export async function eventsArrive(patienceMs = PATIENCE_MS): Promise<void> {
  if (connection.value === "open") return;
  await new Promise<void>((resolve) => {
    const impatient = setTimeout(() => {
      loadedBefore = true;
      resolve();
    }, patienceMs);
    opened.push(() => {
      clearTimeout(impatient);
      resolve();
    });
  });
}

document.addEventListener("visibilitychange", update);

/** Open the stream if it is wanted, and close it a while after it is not wanted any more. */
function update(): void {
  clearTimeout(lingering);
  if (followers.size > 0 && !document.hidden) {
    if (running === null) {
      running = new AbortController();
      void follow(running.signal);
    }
  } else if (running !== null) {
    lingering = setTimeout(stop, LINGER_MS);
  }
}

function stop(): void {
  running?.abort();
  running = null;
  connection.value = "connecting";
}

/** Follow the events until `signal` aborts; after a break, again. */
async function follow(signal: AbortSignal): Promise<void> {
  let wait = RETRY_MS;
  while (!signal.aborted) {
    try {
      await readOnce(signal, () => {
        wait = RETRY_MS;
      });
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError) && !(error instanceof TypeError) && !(error instanceof DOMException))
        throw error;
    }
    if (signal.aborted) return;
    connection.value = "lost";
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(2 * wait, MAX_RETRY_MS);
  }
}

/** Read one stream to its end. */
async function readOnce(signal: AbortSignal, onOpen: () => void): Promise<void> {
  const broken = new AbortController();
  const abort = () => broken.abort();
  signal.addEventListener("abort", abort);
  let silence = setTimeout(abort, SILENCE_MS);
  const alive = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      clearTimeout(silence);
      silence = setTimeout(abort, SILENCE_MS);
      controller.enqueue(chunk);
    },
  });
  try {
    const resumes = lastEventId !== "";
    const headers = { Accept: "text/event-stream", ...(resumes ? { "Last-Event-ID": lastEventId } : {}) };
    const stream = await openStream(PATH, headers, broken.signal);
    for await (const event of serverEvents(stream.pipeThrough(alive))) {
      if (connection.value !== "open") {
        if (connection.value === "lost") reloadUnanswered();
        const missed = loadedBefore || (connection.value === "lost" && !resumes);
        loadedBefore = false;
        connection.value = "open";
        onOpen();
        for (const resolve of opened.splice(0)) resolve();
        if (missed) tell("resync");
      }
      if (event.id !== "") lastEventId = event.id;
      if (event.name !== "") tell(event.name, event.data);
    }
  } finally {
    clearTimeout(silence);
    signal.removeEventListener("abort", abort);
    broken.abort();
  }
}

function tell(name: string, data = "null"): void {
  const told: unknown = JSON.parse(data);
  for (const each of followers) {
    (each as Record<string, ((data: unknown) => void) | undefined>)[name]?.(told);
  }
}
