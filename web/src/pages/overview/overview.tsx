/** What has happened in the last day, week or month: figures, each with a link to the calls behind it. */

import { useLocation } from "preact-iso";

import { get, getPage, queryString, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { useTitle } from "../../app/title";
import { LoadedView } from "../../components/loaded_view";
import { t } from "../../texts";
import { absoluteTime, duration } from "../../texts/format";
import { PeriodChart } from "./period_chart";

type Statistics = Schemas["Statistics"];
type Figures = Schemas["CallStatistics"];

const RANGES = ["1", "7", "30"] as const;
const DAY_MS = 86_400_000;

export default function OverviewPage() {
  const { query, route } = useLocation();
  const days = RANGES.find((each) => each === query.days) ?? "7";
  const statistics = useResource(
    (signal) =>
      get<Statistics>(
        "/v1/statistics",
        {
          from: new Date(Date.now() - Number(days) * DAY_MS).toISOString(),
          interval: days === "1" ? "hour" : "day",
          timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
        },
        signal,
      ),
    [days],
  );
  useTitle(t.overview.title);
  return (
    <>
      <div class="title-bar">
        <h1>{t.overview.title}</h1>
        <label class="field-inline">
          {t.overview.range}
          <select value={days} onChange={(event) => route(`/overview?days=${event.currentTarget.value}`)}>
            {RANGES.map((each) => (
              <option key={each} value={each}>
                {t.overview.ranges[each]}
              </option>
            ))}
          </select>
        </label>
      </div>
      <LoadedView resource={statistics}>
        {(found) => (found.totals.calls === 0 ? <FirstSteps /> : <Report found={found} />)}
      </LoadedView>
    </>
  );
}

/** What leads a newcomer to the first call. */
function FirstSteps() {
  const numbers = useResource(
    (signal) => getPage<Schemas["PhoneNumber"]>("/v1/phone-numbers", { limit: 1 }, signal),
    [],
  );
  const loaded = numbers.current.value;
  const hasNumber = loaded.state === "ready" && loaded.value.data.length > 0;
  return (
    <section class="panel">
      <h2>{t.overview.empty}</h2>
      <ol>
        <li>
          <a href="/agents">{t.overview.steps.agent}</a>
        </li>
        <li>{t.overview.steps.test}</li>
        <li>
          <a href="/phone-numbers">{hasNumber ? t.overview.steps.call : t.overview.steps.number}</a>
        </li>
      </ol>
    </section>
  );
}

/** The address of the list of the calls that were created in a period. */
function callsOf(start: string, end: string, more: Record<string, string | number> = {}): string {
  const to = new Date(Date.parse(end) - 1).toISOString();
  return `/calls${queryString({ from: start, to, ended: "true", test: "false", ...more })}`;
}

function Report({ found }: { found: Statistics }) {
  const { totals, from, until } = found;
  const link = (more: Record<string, string | number> = {}) => callsOf(from, until, more);
  const { figures } = t.overview;
  const gap = totals.responseGap;
  const rows: [string, string, string][] = [
    [figures.calls, String(totals.calls), link()],
    [figures.inbound, String(totals.inbound), link({ direction: "inbound" })],
    [figures.outbound, String(totals.outbound), link({ direction: "outbound" })],
    [figures.failed, String(totals.failed), link({ status: "failed" })],
    [figures.noAnswer, String(totals.noAnswer), link({ status: "no_answer" })],
    [figures.duration, duration(totals.durationSeconds / totals.calls), link()],
    [figures.interruptions, String(totals.interruptions), link({ interrupted: "true" })],
    [figures.cost, totals.cost.toFixed(2), link()],
    ...(gap.p50Ms === null || gap.p95Ms === null
      ? []
      : ([
          [figures.p50, t.overview.ms(gap.p50Ms), link({ minResponseGapMs: gap.p50Ms })],
          [figures.p95, t.overview.ms(gap.p95Ms), link({ minResponseGapMs: gap.p95Ms })],
        ] as [string, string, string][])),
  ];
  return (
    <>
      <ul class="figures">
        {rows.map(([name, value, href]) => (
          <li key={name} class="panel">
            <a href={href}>
              <strong>{value}</strong> {name}
            </a>
          </li>
        ))}
      </ul>
      <section class="panel">
        <h2>{found.interval === "hour" ? t.overview.perHour : t.overview.perDay}</h2>
        <PeriodChart periods={found.periods} interval={found.interval} />
      </section>
      <section class="panel">
        <h2>{t.overview.reasons}</h2>
        <ul>
          {totals.endedReasons.map(({ endedReason, calls }) => (
            <li key={endedReason}>
              <a href={link({ endedReason })}>
                {t.call.endedReason[endedReason] ?? endedReason}: {calls}
              </a>
            </li>
          ))}
        </ul>
      </section>
      <PeriodTable found={found} />
    </>
  );
}

function PeriodTable({ found }: { found: Statistics }) {
  const { figures } = t.overview;
  const cell = (period: Figures & { start: string; end: string }, count: number, more: Record<string, string>) =>
    count === 0 ? "0" : <a href={callsOf(period.start, period.end, more)}>{count}</a>;
  const names = [t.overview.begin, figures.calls, figures.inbound, figures.outbound, figures.failed];
  return (
    <div class="scroll">
      <table>
        <caption>{t.overview.table}</caption>
        <thead>
          <tr>
            {[...names, figures.interruptions, figures.p50, figures.p95].map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {[...found.periods].reverse().map((period) => (
            <tr key={period.start}>
              <td>{absoluteTime(period.start)}</td>
              <td class="figure">{cell(period, period.calls, {})}</td>
              <td class="figure">{cell(period, period.inbound, { direction: "inbound" })}</td>
              <td class="figure">{cell(period, period.outbound, { direction: "outbound" })}</td>
              <td class="figure">{cell(period, period.failed, { status: "failed" })}</td>
              <td class="figure">{cell(period, period.interruptions, { interrupted: "true" })}</td>
              <td class="figure">{period.responseGap.p50Ms === null ? "" : t.overview.ms(period.responseGap.p50Ms)}</td>
              <td class="figure">{period.responseGap.p95Ms === null ? "" : t.overview.ms(period.responseGap.p95Ms)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
