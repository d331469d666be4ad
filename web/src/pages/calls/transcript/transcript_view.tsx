/** The transcript, which follows the recording; a click on an item plays from there. Between its items stands what
 * people did in the call. */

import { type ReadonlySignal, useComputed } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import type { Schemas } from "../../../api/client";
import { t } from "../../../texts";
import { duration } from "../../../texts/format";
import type { Playback } from "../recording/playback";
import { type PersonEvent, personEvents, personSpeaking } from "./people_in_call";
import { RedactedText } from "./redacted_text";
import { SpokenText } from "./spoken_text";
import { ToolCall } from "./tool_call";

type Timeline = Schemas["Timeline"];
type Item = Schemas["Transcript"]["transcript"][number];

interface Props {
  items: readonly Item[];
  /** Null: it is not known. */
  timeline?: Timeline | null;
  /** Null: there is no recording to play. */
  playback: Playback | null;
}

export function TranscriptView({ items, timeline = null, playback }: Props) {
  const current = useComputed(() => {
    if (playback === null) return -1;
    const ms = playback.position.value * 1000;
    return items.findLastIndex((item) => typeof item.startMs === "number" && item.startMs <= ms);
  });
  const events = timeline === null ? [] : personEvents(timeline);
  if (items.length === 0 && events.length === 0) return <p class="notice">{t.call.transcript.empty}</p>;
  let shown = 0;
  const eventsUntil = (ms: number) => {
    const before = shown;
    while (shown < events.length && (events[shown]?.ms ?? 0) < ms) shown += 1;
    return events
      .slice(before, shown)
      .map((event, index) => <EventEntry key={`event ${before + index}`} event={event} playback={playback} />);
  };
  return (
    <ol class="transcript">
      {items.flatMap((item, index) => [
        ...(typeof item.startMs === "number" ? eventsUntil(item.startMs) : []),
        <TranscriptEntry
          key={index}
          item={item}
          index={index}
          speaker={speakerOf(item, timeline)}
          current={current}
          playback={playback}
        />,
      ])}
      {eventsUntil(Number.POSITIVE_INFINITY)}
    </ol>
  );
}

function EventEntry({ event, playback }: { event: PersonEvent; playback: Playback | null }) {
  return (
    <li class="entry entry-person">
      <div class="entry-head">
        <span>{event.text}</span>
        <StartTime start={event.ms / 1000} playback={playback} />
      </div>
      {event.content !== null && (
        <p>
          <RedactedText text={event.content} />
        </p>
      )}
    </li>
  );
}

/** A time of the recording, from which it plays. */
function StartTime({ start, playback }: { start: number; playback: Playback | null }) {
  if (playback === null) return <span>{duration(start)}</span>;
  return (
    <button
      type="button"
      class="link"
      aria-label={t.call.transcript.seek(duration(start))}
      onClick={() => playback.seek(start)}
    >
      {duration(start)}
    </button>
  );
}

interface EntryProps {
  item: Item;
  index: number;
  speaker: string;
  /** The index of the item that is played: the entry is rendered when it becomes that or ceases to be. */
  current: ReadonlySignal<number>;
  playback: Playback | null;
}

function TranscriptEntry({ item, index, speaker, current: currentIndex, playback }: EntryProps) {
  const entry = useRef<HTMLLIElement>(null);
  const current = useComputed(() => currentIndex.value === index).value;
  useEffect(() => {
    if (current && playback?.playing.value) entry.current?.scrollIntoView({ block: "nearest" });
  }, [current, playback]);
  const start = typeof item.startMs === "number" ? item.startMs / 1000 : null;
  return (
    <li ref={entry} class={`entry entry-${item.role}`} aria-current={current ? "true" : undefined}>
      <div class="entry-head">
        <span>{speaker}</span>
        {start !== null && <StartTime start={start} playback={playback} />}
      </div>
      {"content" in item ? (
        <SpokenText item={item} current={current} playback={playback} />
      ) : (
        <ToolCall {...item} result={item.ok ? item.result : item.error} />
      )}
    </li>
  );
}

function speakerOf(item: Item, timeline: Timeline | null): string {
  if ("speaker" in item && item.speaker) {
    return personSpeaking(timeline, item.speaker, item.startMs) ?? t.call.turns.speakers[item.speaker];
  }
  return t.call.transcript.roles[item.role] ?? item.role;
}
