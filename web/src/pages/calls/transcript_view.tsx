/** The transcript, which follows the recording; a click on an item plays from there. */

import { useComputed } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import type { Schemas } from "../../api/client";
import { t } from "../../texts";
import { duration } from "../../texts/format";
import type { Playback } from "./playback";
import { RedactedText } from "./redacted_text";
import { ToolCall } from "./tool_call";

type Item = Schemas["Transcript"]["transcript"][number];

export function TranscriptView({ items, playback }: { items: readonly Item[]; playback: Playback | null }) {
  const current = useComputed(() => {
    if (playback === null) return -1;
    const ms = playback.position.value * 1000;
    return items.findLastIndex((item) => typeof item.startMs === "number" && item.startMs <= ms);
  });
  if (items.length === 0) return <p class="notice">{t.call.transcript.empty}</p>;
  return (
    <ol class="transcript">
      {items.map((item, index) => (
        <TranscriptEntry key={index} item={item} current={current.value === index} playback={playback} />
      ))}
    </ol>
  );
}

function TranscriptEntry({ item, current, playback }: { item: Item; current: boolean; playback: Playback | null }) {
  const entry = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (current && playback?.playing.value) entry.current?.scrollIntoView({ block: "nearest" });
  }, [current, playback]);
  const start = typeof item.startMs === "number" ? item.startMs / 1000 : null;
  return (
    <li ref={entry} class={`entry entry-${item.role}`} aria-current={current ? "true" : undefined}>
      <div class="entry-head">
        <span>{speakerOf(item)}</span>
        {start !== null && playback === null && <span>{duration(start)}</span>}
        {start !== null && playback !== null && (
          <button
            type="button"
            class="link"
            aria-label={t.call.transcript.seek(duration(start))}
            onClick={() => playback.seek(start)}
          >
            {duration(start)}
          </button>
        )}
      </div>
      {"content" in item ? (
        <p>
          <RedactedText text={item.content} />
        </p>
      ) : (
        <ToolCall {...item} result={item.ok ? item.result : item.error} />
      )}
    </li>
  );
}

function speakerOf(item: Item): string {
  if ("speaker" in item && item.speaker) return t.call.turns.speakers[item.speaker];
  return t.call.transcript.roles[item.role] ?? item.role;
}
