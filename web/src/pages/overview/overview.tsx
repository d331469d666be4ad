/** What has happened in the last day, week or month: figures, each with a link to the calls behind it. */

import { useLocation } from "preact-iso";

import { get, getPage, queryString, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { useTitle } from "../../app/title";
import { LoadedView } from "../../components/loaded_view";
import { t } from "../../texts";
import { absoluteTime, dayOf, duration, timeOf } from "../../texts/format";
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

/** The least gap of the calls behind a percentile: the begin of the bin that the server has interpolated it in. */
function leastGap(percentileMs: number | null): number {
  if (percentileMs === null) return 0;
  const binMs = percentileMs <= 1000 ? 25 : percentileMs <= 5000 ? 100 : 1000;
  return Math.max(0, Math.floor((percentileMs - 1) / binMs) * binMs);
}

/** A figure: its name, its value, and the calls behind it. */
type Row = readonly [string, string, string];

/** The figures of calls that are not none, each with the list of its calls. */
function rowsOf(found: Figures, link: (more?: Record<string, string | number>) => string): readonly Row[] {
  const { figures, ms } = t.overview;
  const { p50Ms, p95Ms } = found.responseGap;
  return [
    [figures.calls, String(found.calls), link()],
    [figures.inbound, String(found.inbound), link({ direction: "inbound" })],
    [figures.outbound, String(found.outbound), link({ direction: "outbound" })],
    [figures.failed, String(found.failed), link({ status: "failed" })],
    [figures.noAnswer, String(found.noAnswer), link({ status: "no_answer" })],
    [figures.duration, duration(found.calls === 0 ? 0 : found.durationSeconds / found.calls), link()],
    [figures.interruptions, String(found.interruptions), link({ interrupted: "true" })],
    [figures.cost, found.cost.toFixed(2), link()],
    [figures.p50, p50Ms === null ? "" : ms(p50Ms), link({ minResponseGapMs: leastGap(p50Ms) })],
    [figures.p95, p95Ms === null ? "" : ms(p95Ms), link({ minResponseGapMs: leastGap(p95Ms) })],
  ];
}

function Report({ found }: { found: Statistics }) {
  const { totals, from, until } = found;
  const link = (more: Record<string, string | number> = {}) => callsOf(from, until, more);
  const rows = rowsOf(totals, link).filter(([, value]) => value !== "");
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
  const periods = [...found.periods].reverse().map((period) => ({
    period,
    rows: rowsOf(period, (more = {}) => callsOf(period.start, period.end, more)),
  }));
  const names = periods[0]?.rows.map(([name]) => name) ?? [];
  return (
    <div class="scroll">
      <table class="periods">
        <caption>{t.overview.table}</caption>
        <thead>
          <tr>
            {[t.overview.begin, ...names].map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {periods.map(({ period, rows }) => (
            <tr key={period.start}>
              <td>
                <time dateTime={period.start} title={absoluteTime(period.start)}>
                  {dayOf(Date.parse(period.start))}
                  {found.interval === "hour" && `, ${timeOf(Date.parse(period.start))}`}
                </time>
              </td>
              {rows.map(([name, value, href]) => (
                <td key={name} class="figure">
                  {Number(value) === 0 || period.calls === 0 ? value : <a href={href}>{value}</a>}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
