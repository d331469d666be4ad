/** The transcript, which follows the recording; a click on an item plays from there. */

import { useComputed } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import type { Schemas } from "../../api/client";
import { t } from "../../texts";
import { duration } from "../../texts/format";
import type { Playback } from "./playback";

type Item = Schemas["Transcript"]["transcript"][number];

export function TranscriptView({ items, playback }: { items: readonly Item[]; playback: Playback }) {
  const current = useComputed(() => {
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

function TranscriptEntry({ item, current, playback }: { item: Item; current: boolean; playback: Playback }) {
  const entry = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (current && playback.playing.value) entry.current?.scrollIntoView({ block: "nearest" });
  }, [current, playback]);
  const start = typeof item.startMs === "number" ? item.startMs / 1000 : null;
  return (
    <li ref={entry} class={`entry entry-${item.role}`} aria-current={current ? "true" : undefined}>
      <div class="entry-head">
        <span>{t.call.transcript.roles[item.role] ?? item.role}</span>
        {start !== null && (
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
      {"content" in item ? <p>{item.content}</p> : <ToolCall item={item} />}
    </li>
  );
}

function ToolCall({ item }: { item: Schemas["ToolCallItem"] }) {
  return (
    <details>
      <summary>{item.name}</summary>
      <p class="quiet">{t.call.transcript.arguments}</p>
      <pre>{JSON.stringify(item.arguments, null, 2)}</pre>
      <p class="quiet">{t.call.transcript.result}</p>
      <pre>{typeof item.result === "string" ? item.result : JSON.stringify(item.result, null, 2)}</pre>
    </details>
  );
}
