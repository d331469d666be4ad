/** Each turn as a waterfall on the recording's clock: when the caller stopped, what the answer waited for. */

import { queryString, type Schemas } from "../../api/client";
import { t } from "../../texts";
import { duration } from "../../texts/format";
import type { Playback } from "./recording/playback";
import { personSpeaking } from "./transcript/people_in_call";

type Turn = Schemas["TurnTimes"];
type Part = keyof typeof t.call.turns.parts;

interface Stretch {
  part: Part;
  from: number;
  until: number;
}

type Names = Partial<Record<Part, string>>;

interface Props {
  turns: readonly Turn[];
  /** Null: it is not known who has taken the call over. */
  timeline?: Schemas["Timeline"] | null;
  /** Null: there is no recording to play. */
  playback: Playback | null;
  /** The turns are those of a chat. */
  written?: boolean;
  /** The agent whose documents the passages are of; null if it is deleted. */
  agentId?: string | null;
}

export function TurnWaterfall({ turns, timeline = null, playback, written = false, agentId = null }: Props) {
  if (turns.length === 0) return <p class="notice">{t.call.turns.empty}</p>;
  const names: Names = written ? t.call.turns.writtenParts : t.call.turns.parts;
  const longest = Math.max(...turns.map((turn) => lengthOf(stretchesOf(turn, names))));
  return (
    <>
      <ul class="legend">
        {Object.entries(names).map(([part, name]) => (
          <li key={part} class={`part part-${part}`}>
            {name}
          </li>
        ))}
      </ul>
      <ol class="turns">
        {turns.map((turn, index) => (
          <TurnRow
            key={index}
            turn={turn}
            timeline={timeline}
            playback={playback}
            names={names}
            scale={longest}
            agentId={agentId}
          />
        ))}
      </ol>
      {timeline !== null && timeline.fallbacks.length > 0 && <Fallbacks fallbacks={timeline.fallbacks} />}
    </>
  );
}

/** The models that failed in the call. */
function Fallbacks({ fallbacks }: { fallbacks: readonly Schemas["TimelineFallback"][] }) {
  const { turns } = t.call;
  const why: Readonly<Record<string, string>> = turns.failures;
  return (
    <ul class="turn-details quiet">
      {fallbacks.map((each, index) => (
        <li key={index}>
          {duration(each.atMs / 1000)} {turns.failed(each.model, why[each.reason] ?? turns.failures.failing)}
          {each.to !== null && ` ${turns.tookOver(each.to)}`}
        </li>
      ))}
    </ul>
  );
}

interface RowProps {
  turn: Turn;
  /** Null: it is not known who has taken the call over. */
  timeline?: Schemas["Timeline"] | null;
  playback: Playback | null;
  /** The parts that are shown. */
  names?: Names;
  /** The ms that the whole width stands for; without it those of the turn. */
  scale?: number;
  agentId?: string | null;
}

export function TurnRow(props: RowProps) {
  const { turn, timeline = null, playback, names = t.call.turns.parts, scale = 0, agentId = null } = props;
  const stretches = stretchesOf(turn, names);
  const described = ({ part, from, until }: Stretch) => `${names[part]}: ${until - from} ms`;
  const first = Math.min(...stretches.map((each) => each.from));
  const span = Math.max(scale, lengthOf(stretches));
  return (
    <li class="turn">
      <div class="entry-head">
        <span>{personSpeaking(timeline, turn.speaker, turn.speechStartMs) ?? nameOf(turn)}</span>
        {stretches.length > 0 &&
          (playback === null ? (
            <span>{duration(first / 1000)}</span>
          ) : (
            <button type="button" class="link" onClick={() => playback.seek(first / 1000)}>
              {duration(first / 1000)}
            </button>
          ))}
        <span class="quiet">{notesOf(turn).join(" · ")}</span>
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
      <TurnDetails turn={turn} agentId={agentId} />
    </li>
  );
}

function TurnDetails({ turn, agentId }: { turn: Turn; agentId: string | null }) {
  const { turns } = t.call;
  if (turn.tools.length === 0 && turn.sources.length === 0) return null;
  return (
    <ul class="turn-details quiet">
      {turn.tools.map((tool) => (
        <li key={`${tool.name} ${tool.startMs}`}>
          {turns.tool(tool.name, tool.endMs - tool.startMs)}
          {!tool.ok && ` (${turns.toolFailed})`}
        </li>
      ))}
      {turn.sources.map((source) => (
        <li key={`${source.documentId} ${source.position}`}>
          {turns.source(source.document, source.position + 1, source.score)}{" "}
          {agentId !== null && (
            <a href={`/knowledge${queryString({ agentId, document: source.documentId })}`}>{turns.openDocument}</a>
          )}
        </li>
      ))}
    </ul>
  );
}

function nameOf(turn: Turn): string {
  const { turns } = t.call;
  if (turn.speaker) return turns.speakers[turn.speaker];
  return turn.turn === 0 ? turns.opening : turns.turn(turn.turn);
}

function notesOf(turn: Turn): string[] {
  const { turns } = t.call;
  return [
    turn.responseGapMs === null ? "" : turns.gap(turn.responseGapMs),
    turn.eotProbability === null ? "" : turns.probability(turn.eotProbability),
    turn.endedBy === null || turn.endedBy === "model" || turn.endedBy === "typed" ? "" : turns.endedBy[turn.endedBy],
    turn.interrupted ? turns.interrupted : "",
    turn.speculated ? turns.speculated : "",
  ].filter((note) => note !== "");
}

/** The stretches of a turn that have a name, ms: each from the moment that began it to the one that ended it, where both are known. */
function stretchesOf(turn: Turn, names: Names): Stretch[] {
  const limits: [Part, number | null, number | null][] = [
    ["speech", turn.speechStartMs, turn.speechEndMs],
    ["endpointing", turn.speechEndMs, turn.turnEndMs],
    ["text", turn.turnEndMs, turn.textReadyMs],
    ["firstToken", later(turn.turnEndMs, turn.textReadyMs), turn.firstTokenMs],
    ["firstSound", later(turn.turnEndMs, turn.firstTokenMs), turn.agentStartMs],
    ["agent", turn.agentStartMs, turn.agentEndMs],
  ];
  return limits.flatMap(([part, from, until]) =>
    from === null || until === null || until < from || !(part in names) ? [] : [{ part, from, until }],
  );
}

/** From the first to the last moment of these stretches, ms; at least 1. */
function lengthOf(stretches: readonly Stretch[]): number {
  const first = Math.min(...stretches.map((each) => each.from));
  const last = Math.max(...stretches.map((each) => each.until));
  return stretches.length === 0 ? 1 : Math.max(1, last - first);
}

/** The later of two moments: a response that was speculated began before the end of the turn. */
function later(one: number | null, other: number | null): number | null {
  return one === null || other === null ? (other ?? one) : Math.max(one, other);
}
