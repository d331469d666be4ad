/** Each turn as a waterfall on the recording's clock: when the caller stopped, what the answer waited for. */

import type { Schemas } from "../../api/client";
import { t } from "../../texts";
import { duration } from "../../texts/format";
import type { Playback } from "./playback";

type Turn = Schemas["TurnTimes"];
type Part = keyof typeof t.call.turns.parts;

interface Stretch {
  part: Part;
  from: number;
  until: number;
}

export function TurnWaterfall({ turns, playback }: { turns: readonly Turn[]; playback: Playback }) {
  if (turns.length === 0) return <p class="notice">{t.call.turns.empty}</p>;
  return (
    <>
      <ul class="legend">
        {Object.entries(t.call.turns.parts).map(([part, name]) => (
          <li key={part} class={`part part-${part}`}>
            {name}
          </li>
        ))}
      </ul>
      <ol class="turns">
        {turns.map((turn) => (
          <TurnRow key={turn.turn} turn={turn} playback={playback} />
        ))}
      </ol>
    </>
  );
}

function TurnRow({ turn, playback }: { turn: Turn; playback: Playback }) {
  const stretches = stretchesOf(turn);
  const first = Math.min(...stretches.map((each) => each.from));
  const last = Math.max(...stretches.map((each) => each.until));
  const span = Math.max(1, last - first);
  const { turns } = t.call;
  const notes = [
    turn.responseGapMs === null ? "" : turns.gap(turn.responseGapMs),
    turn.eotProbability === null ? "" : turns.probability(turn.eotProbability),
    turn.interrupted ? turns.interrupted : "",
  ].filter((note) => note !== "");
  return (
    <li class="turn">
      <div class="entry-head">
        <span>{turns.turn(turn.turn)}</span>
        {stretches.length > 0 && (
          <button type="button" class="link" onClick={() => playback.seek(first / 1000)}>
            {duration(first / 1000)}
          </button>
        )}
        <span class="quiet">{notes.join(" · ")}</span>
      </div>
      <div class="bar" role="img" aria-label={stretches.map(described).join(", ")}>
        {stretches.map(({ part, from, until }) => (
          <span
            key={part}
            class={`part part-${part}`}
            title={described({ part, from, until })}
            style={{ left: `${((from - first) / span) * 100}%`, width: `${((until - from) / span) * 100}%` }}
          />
        ))}
      </div>
    </li>
  );
}

function described({ part, from, until }: Stretch): string {
  return `${t.call.turns.parts[part]}: ${until - from} ms`;
}

/** The stretches of a turn, ms: each from the moment that began it to the one that ended it, where both are known. */
function stretchesOf(turn: Turn): Stretch[] {
  const limits: [Part, number | null, number | null][] = [
    ["speech", turn.speechStartMs, turn.speechEndMs],
    ["endpointing", turn.speechEndMs, turn.turnEndMs],
    ["text", turn.turnEndMs, turn.textReadyMs],
    ["firstToken", turn.textReadyMs, turn.firstTokenMs],
    ["firstSound", turn.firstTokenMs, turn.agentStartMs],
    ["agent", turn.agentStartMs, turn.agentEndMs],
  ];
  return limits.flatMap(([part, from, until]) =>
    from === null || until === null || until < from ? [] : [{ part, from, until }],
  );
}
