/** What people did in a call: notes to the agent, listening in, and taking the call over. */

import type { Schemas } from "../../../api/client";
import { t } from "../../../texts";
import { duration } from "../../../texts/format";

type Timeline = Schemas["Timeline"];

export interface PersonEvent {
  ms: number;
  text: string;
  /** Of a note. */
  content: string | null;
}

/** In order of time. */
export function personEvents({ notes, listening, takeover }: Timeline): PersonEvent[] {
  const { people } = t.call;
  const at = (ms: number) => duration(ms / 1000);
  const events: PersonEvent[] = [
    ...notes.map(({ atMs, author, content }) => ({ ms: atMs, text: people.note(author), content })),
    ...listening.map(({ startMs, endMs, by }) => ({
      ms: startMs,
      text: endMs === null ? people.listened(by, at(startMs)) : people.listenedUntil(by, at(startMs), at(endMs)),
      content: null,
    })),
    ...(takeover ? [{ ms: takeover.atMs, text: people.tookOver(takeover.by), content: null }] : []),
  ];
  return events.sort((one, other) => one.ms - other.ms);
}

/** The name of who said it, if that is the person who took the call over. `ms`: when it was said. */
export function personSpeaking(
  timeline: Timeline | null,
  speaker: Schemas["TurnTimes"]["speaker"] | undefined,
  ms: number | null | undefined,
): string | null {
  const takeover = timeline?.takeover;
  if (!takeover || speaker !== "target" || typeof ms !== "number" || ms < takeover.atMs) return null;
  return t.call.people.person(takeover.by);
}
