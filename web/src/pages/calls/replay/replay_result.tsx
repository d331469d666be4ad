/** What a replay found: figures of all turns, and each turn with the difference that the settings make. */

import type { Schemas } from "../../../api/client";
import { Table } from "../../../components/table";
import { t } from "../../../texts";
import { duration } from "../../../texts/format";
import type { Playback } from "../recording/playback";

type Replay = Schemas["CallReplay"];
type Row = Schemas["ReplayRow"];
type Turn = Schemas["ReplayTurn"];
type Totals = Schemas["ReplayTotals"];

interface Props {
  found: Replay;
  playback: Playback;
}

export function ReplayResult({ found, playback }: Props) {
  const { replay } = t.call;
  const { sides } = replay;
  const columns = [sides.call, sides.before, sides.after, replay.difference];
  return (
    <section aria-label={replay.result}>
      <p class="quiet" role="status">
        {replay.explained[found.settingsFrom]}
      </p>
      <Table label={replay.totals} columns={[replay.figure, ...columns]}>
        {FIGURES.map(([name, ofTotals]) => (
          <FigureRow key={name} name={name} values={found.totals} ofTotals={ofTotals} />
        ))}
      </Table>
      <h2 class="next">{replay.turns}</h2>
      {found.turns.length === 0 ? (
        <p class="notice">{replay.noTurns}</p>
      ) : (
        <Table label={replay.turns} columns={[replay.turn, ...columns]}>
          {found.turns.map((row, index) => (
            <TurnRow key={index} row={row} number={index + 1} playback={playback} />
          ))}
        </Table>
      )}
    </section>
  );
}

type Figure = keyof typeof t.call.replay.figures;

const FIGURES: readonly (readonly [Figure, (totals: Totals) => number | null])[] = [
  ["turns", (totals) => totals.turns],
  ["endedTooEarly", (totals) => totals.endedTooEarly],
  ["interruptions", (totals) => totals.interruptions],
  ["pauses", (totals) => totals.pauses],
  ["waitMedian", (totals) => totals.waitMs.median],
  ["waitP95", (totals) => totals.waitMs.p95],
  ["gapMedian", (totals) => totals.responseGapMs.median],
  ["gapP95", (totals) => totals.responseGapMs.p95],
  ["dropped", (totals) => totals.dropped?.reduce((sum, { count }) => sum + count, 0) ?? null],
];

interface FigureProps {
  name: Figure;
  values: Replay["totals"];
  ofTotals: (totals: Totals) => number | null;
}

function FigureRow({ name, values, ofTotals }: FigureProps) {
  const [call, before, after] = [ofTotals(values.call), ofTotals(values.before), ofTotals(values.after)];
  const change = before === null || after === null ? null : after - before;
  return (
    <tr>
      <th scope="row">{t.call.replay.figures[name]}</th>
      {[call, before, after].map((value, index) => (
        <td key={index}>{value ?? t.call.replay.unknown}</td>
      ))}
      <td>{change === null ? t.call.replay.unknown : t.call.replay.change(change)}</td>
    </tr>
  );
}

function TurnRow({ row, number, playback }: { row: Row; number: number; playback: Playback }) {
  const { replay, transcript } = t.call;
  const start = Math.min(...[row.call, row.before, row.after].map((turn) => turn?.speechStartMs ?? Infinity)) / 1000;
  const differences = differencesOf(row);
  return (
    <tr class={differences.length > 0 ? "changed" : ""}>
      <th scope="row">
        {number}{" "}
        <button
          type="button"
          class="link"
          aria-label={transcript.seek(duration(start))}
          onClick={() => playback.seek(start)}
        >
          {duration(start)}
        </button>
      </th>
      <TurnCell turn={row.call} />
      <TurnCell turn={row.before} />
      <TurnCell turn={row.after} />
      <td class="changes">
        {differences.length === 0 ? (
          <span class="quiet">{replay.same}</span>
        ) : (
          differences.map((each) => <div key={each}>{each}</div>)
        )}
      </td>
    </tr>
  );
}

function TurnCell({ turn }: { turn: Turn | null }) {
  const { replay } = t.call;
  if (turn === null) return <td class="quiet">{replay.noTurn}</td>;
  return (
    <td>
      <div>{replay.wait(turn.waitMs)}</div>
      <div class="quiet">{replay.endedBy[turn.endedBy](turn.eotProbability)}</div>
      <div class="quiet">{turn.responseGapMs === null ? replay.noAnswer : replay.gap(turn.responseGapMs)}</div>
      {turn.interruptsAgent && <div>{replay.interrupts}</div>}
      {turn.endedTooEarly && <div class="problem">{replay.tooEarly}</div>}
    </td>
  );
}

/** What the settings change in a turn, in words. The replays are compared: models take no time in either. */
function differencesOf({ before, after, turnEndMovedMs }: Row): string[] {
  const { differences } = t.call.replay;
  if (before === null) return after === null ? [] : [differences.gained];
  if (after === null) return [differences.lost];
  return [
    turnEndMovedMs === null || turnEndMovedMs === 0 ? "" : differences.moved(turnEndMovedMs),
    before.interruptsAgent === after.interruptsAgent
      ? ""
      : differences.interrupts[after.interruptsAgent ? "now" : "not"],
    before.endedTooEarly === after.endedTooEarly ? "" : differences.tooEarly[after.endedTooEarly ? "now" : "not"],
  ].filter((each) => each !== "");
}
