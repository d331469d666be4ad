/** What happened besides speech, on the clock of the waveform: interruptions, DTMF digits, tools,
 * transfers, and what people did. */

import type { Schemas } from "../../api/client";
import { t } from "../../texts";
import { duration } from "../../texts/format";
import { personEvents } from "./people_in_call";
import type { Playback } from "./playback";

type Kind = keyof typeof t.call.markers;

interface Marker {
  kind: Kind;
  ms: number;
  text: string;
}

interface Props {
  timeline: Schemas["Timeline"];
  playback: Playback;
}

export function TimelineMarkers({ timeline, playback }: Props) {
  const seconds = playback.duration.value;
  const markers = markersOf(timeline);
  if (seconds === 0 || markers.length === 0) return null;
  return (
    <ul class="markers" aria-label={t.call.markersLabel}>
      {markers.map(({ kind, ms, text }) => (
        <li key={`${kind} ${ms} ${text}`} style={{ left: `${Math.min(100, ms / 10 / seconds)}%` }}>
          <button
            type="button"
            class={`marker marker-${kind}`}
            title={`${duration(ms / 1000)} ${text}`}
            aria-label={`${duration(ms / 1000)} ${text}`}
            onClick={() => playback.seek(ms / 1000)}
          />
        </li>
      ))}
    </ul>
  );
}

function markersOf(timeline: Schemas["Timeline"]): Marker[] {
  const { turns, transfers } = timeline;
  const { markers } = t.call;
  const ofTurns = turns.flatMap((turn) => [
    ...(turn.interruptedMs === null ? [] : [{ kind: "interruption" as const, ms: turn.interruptedMs, text: "" }]),
    ...(turn.endedBy !== "digits" || turn.turnEndMs === null
      ? []
      : [{ kind: "digits" as const, ms: turn.turnEndMs, text: "" }]),
    ...turn.tools.map((tool) => ({ kind: "tool" as const, ms: tool.startMs, text: tool.name })),
  ]);
  const ofTransfers = transfers.flatMap((transfer) =>
    transfer.states.map((state) => ({
      kind: "transfer" as const,
      ms: state.atMs,
      text: `${transfer.targetName}: ${t.call.transferStatus[state.status]}`,
    })),
  );
  const ofPeople = personEvents(timeline).map(({ ms, text }) => ({ kind: "person" as const, ms, text }));
  return [...ofTurns, ...ofTransfers, ...ofPeople].map((each) => ({
    ...each,
    text: each.text === "" ? markers[each.kind] : `${markers[each.kind]}: ${each.text}`,
  }));
}
