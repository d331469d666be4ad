/** The live calls, newest first. A row is drawn again only when its call changes; its duration once a second. */

import type { Signal } from "@preact/signals";
import { memo } from "preact/compat";

import { hasRole } from "../../app/session";
import { t } from "../../texts";
import { duration } from "../../texts/format";
import { namedParty, partyOf } from "../calls/kind";
import { useListeningPermitted } from "../calls/live/listening_permission";
import { now } from "./clock";
import type { Call, LiveCalls } from "./live_calls";
import { StateBadge } from "./state_badge";

export function LiveCallTable({ calls, chosen }: { calls: LiveCalls; chosen: string }) {
  const ids = calls.ids.value;
  const permitted = useListeningPermitted();
  if (ids.length === 0) return <p class="notice">{t.live.empty}</p>;
  return (
    <div>
      {!permitted && hasRole("editor") && <p class="quiet">{t.call.live.notPermitted}</p>}
      <div class="scroll">
        <table class="live-calls">
          <caption class="quiet">{t.live.count(ids.length)}</caption>
          <thead>
            <tr>
              {Object.entries(t.live.columns)
                .filter(([column]) => column !== "listen" || hasRole("editor"))
                .map(([column, name]) => (
                  <th key={column} scope="col">
                    {name}
                  </th>
                ))}
            </tr>
          </thead>
          <tbody>
            {ids.map((id) => {
              const call = calls.of(id);
              return call && <Row key={id} call={call} chosen={id === chosen} permitted={permitted} />;
            })}
          </tbody>
        </table>
      </div>
    </div>
  );
}

interface RowProps {
  call: Signal<Call>;
  chosen: boolean;
  /** The call may be listened in to. */
  permitted: boolean;
}

const Row = memo(({ call, chosen, permitted }: RowProps) => {
  const { id, direction, calledNumber, startedAt, state, live } = call.value;
  return (
    <tr class={chosen ? "chosen" : undefined}>
      <td>
        <StateBadge state={state} />
      </td>
      <td class="clip">
        <a href={`/live?call=${id}`} aria-current={chosen ? "true" : undefined}>
          {partyOf(call.value)}
        </a>
      </td>
      <td>{t.calls.direction[direction]}</td>
      <td class="clip">{calledNumber}</td>
      <td class="figure">
        <Elapsed call={call} />
      </td>
      <td class="figure">{live?.responseGapMs == null ? "" : t.live.ms(live.responseGapMs)}</td>
      <td class="figure">{live?.lossPercent == null ? "" : t.live.percent(live.lossPercent)}</td>
      <td class="figure">{live?.mos == null ? "" : live.mos.toFixed(1)}</td>
      {hasRole("editor") && (
        <td>
          {startedAt !== null && permitted && (
            <a href={`/calls/${id}`} aria-label={t.live.listenTo(namedParty(call.value))}>
              {t.live.listen}
            </a>
          )}
          {startedAt !== null && !permitted && (
            <button type="button" disabled title={t.call.live.notPermitted}>
              {t.live.listen}
            </button>
          )}
        </td>
      )}
    </tr>
  );
});

/** The time since the answer, which counts on between two events. */
export function Elapsed({ call }: { call: Signal<Call> }) {
  const { startedAt, durationSeconds } = call.value;
  if (durationSeconds !== null) return <>{duration(durationSeconds)}</>;
  return <>{startedAt === null ? "" : duration((now.value - Date.parse(startedAt)) / 1000)}</>;
}
