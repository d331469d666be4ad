/** What happened besides speech, on the clock of the waveform: interruptions, DTMF digits, tools,
 * transfers, and what people did. */

import type { Schemas } from "../../../api/client";
import { t } from "../../../texts";
import { duration } from "../../../texts/format";
import { personEvents } from "../transcript/people_in_call";
import type { Playback } from "./playback";

type Kind = keyof typeof t.call.markers;

interface Marker {
  kind: Kind;
  ms: number;
  text: string;
}

interface Props {
  timeline: Schemas["Timeline"];
  /** The keys that were pressed stand there; null until it is loaded. */
  transcript: Schemas["Transcript"] | null;
  playback: Playback;
}

export function TimelineMarkers({ timeline, transcript, playback }: Props) {
  const seconds = playback.duration.value;
  const markers = markersOf(timeline, transcript);
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

function markersOf(timeline: Schemas["Timeline"], transcript: Schemas["Transcript"] | null): Marker[] {
  const { turns, transfers } = timeline;
  const { markers } = t.call;
  const ofTurns = turns.flatMap((turn) => [
    ...(turn.interruptedMs === null ? [] : [{ kind: "interruption" as const, ms: turn.interruptedMs, text: "" }]),
    ...keysOf(turn, transcript),
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

/** The keys of a turn that they have ended: the last words of the customer before its end, at the first key. */
function keysOf(turn: Schemas["TurnTimes"], transcript: Schemas["Transcript"] | null): Marker[] {
  const end = turn.turnEndMs;
  if (turn.endedBy !== "digits" || end === null) return [];
  const pressed = transcript?.transcript.findLast(
    (item) => item.role === "user" && !item.speaker && typeof item.endMs === "number" && item.endMs <= end,
  );
  if (pressed?.role !== "user") return [{ kind: "digits", ms: end, text: "" }];
  return [{ kind: "digits", ms: pressed.startMs ?? end, text: pressed.content }];
}
