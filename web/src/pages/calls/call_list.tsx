/** The list of calls, newest first, with filters that stand in the address. */

import { useLocation } from "preact-iso";

import { download, everything, getPage, queryString, type Schemas } from "../../api/client";
import { eventsArrive, LIST_PATIENCE_MS } from "../../api/events";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { hasRole } from "../../app/session";
import { useTitle } from "../../app/title";
import { LoadedView } from "../../components/loaded_view";
import { Paging } from "../../components/paging";
import { StatusBadge } from "../../components/status_badge";
import { Time } from "../../components/time";
import { t } from "../../texts";
import { duration } from "../../texts/format";
import { useFollowedCalls } from "./followed_calls";
import { directionOf, partyOf } from "./kind";

type Call = Schemas["CallListItem"];
type Agent = Schemas["Agent"];

const PAGE_SIZE = 50;
const CHOSEN = ["agentId", "status", "direction"] as const;
const TIMES = ["from", "to"] as const;
/** Filters that links of other pages set; the bar lists them, and each can be removed. */
const LINKED = ["phoneNumberId", "endedReason", "ended", "test", "interrupted", "minResponseGapMs"] as const;
const FILTERS = [...CHOSEN, ...TIMES, ...LINKED] as const;
type Filters = Partial<Record<(typeof FILTERS)[number], string>>;

export default function CallListPage() {
  const { query, route } = useLocation();
  const offset = Number.parseInt(query.offset ?? "0", 10) || 0;
  const filters: Filters = Object.fromEntries(FILTERS.flatMap((name) => (query[name] ? [[name, query[name]]] : [])));
  const calls = useResource(
    async (signal) => {
      await eventsArrive(LIST_PATIENCE_MS);
      return await getPage<Call>("/v1/calls", { ...filters, limit: PAGE_SIZE, offset }, signal);
    },
    [JSON.stringify(filters), offset],
  );
  const agents = useResource((signal) => everything<Agent>("/v1/agents", signal), []);
  const names = agents.current.value.state === "ready" ? agents.current.value.value : null;
  useTitle(t.calls.title);
  const upToDate = useFollowedCalls({
    takes: (call) =>
      offset === 0 &&
      [...TIMES, ...LINKED].every((name) => !filters[name]) &&
      CHOSEN.every((name) => !filters[name] || call[name] === filters[name]),
    reload: calls.reload,
    page: JSON.stringify([filters, offset]),
    size: PAGE_SIZE,
  });

  const show = (changed: Filters, first = 0) => route(`/calls${queryString({ ...changed, offset: first || null })}`);
  return (
    <>
      <div class="title-bar">
        <h1>{t.calls.title}</h1>
        <ExportButton filters={filters} />
      </div>
      <FilterBar filters={filters} agents={names ?? []} onChange={show} />
      <LoadedView resource={calls}>
        {(page) => {
          const shown = upToDate(page.data);
          return shown.length === 0 ? (
            <p class="notice">{Object.keys(filters).length > 0 ? t.calls.noMatch : t.calls.empty}</p>
          ) : (
            <>
              <CallTable calls={shown} agents={names} />
              <Paging
                label={t.calls.title}
                page={page}
                size={PAGE_SIZE}
                previous={t.calls.previous}
                next={t.calls.next}
                onMove={(first) => show(filters, first)}
              />
            </>
          );
        }}
      </LoadedView>
    </>
  );
}

/** Saves the list as the filters choose it, for spreadsheets. */
function ExportButton({ filters }: { filters: Filters }) {
  const { busy, problem, run } = useSaving();
  if (!hasRole("owner")) return null;
  return (
    <div class="actions">
      <span class="problem" role="alert">
        {problem}
      </span>
      <button
        type="button"
        disabled={busy.value}
        onClick={() => void run(() => download(`/v1/calls/export${queryString(filters)}`, "calls.csv"))}
      >
        {t.calls.export}
      </button>
    </div>
  );
}

interface FilterProps {
  filters: Filters;
  agents: readonly Agent[];
  onChange: (filters: Filters) => void;
}

function FilterBar({ filters, agents, onChange }: FilterProps) {
  const choices: [keyof Filters, string, [string, string][]][] = [
    ["agentId", t.calls.filters.agent, agents.map((agent) => [agent.id, agent.name])],
    ["status", t.calls.filters.status, Object.entries(t.calls.status)],
    ["direction", t.calls.filters.direction, Object.entries(t.calls.direction)],
  ];
  return (
    <div class="filters">
      {choices.map(([name, label, options]) => (
        <label key={name} class="field-inline">
          {label}
          <select
            value={filters[name] ?? ""}
            onChange={(event) => onChange({ ...filters, [name]: event.currentTarget.value })}
          >
            <option value="">{t.calls.filters.any}</option>
            {options.map(([value, text]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
        </label>
      ))}
      {TIMES.map((name) => (
        <label key={name} class="field-inline">
          {t.calls.filters[name]}
          <input
            type="datetime-local"
            step="1"
            value={localOf(filters[name])}
            onChange={(event) => onChange({ ...filters, [name]: instantOf(event.currentTarget.value) })}
          />
        </label>
      ))}
      {LINKED.map((name) => {
        const value = filters[name];
        if (value === undefined) return null;
        const text = textOf(name, value);
        return (
          <button
            key={name}
            type="button"
            aria-label={t.calls.filters.remove(text)}
            onClick={() => onChange({ ...filters, [name]: "" })}
          >
            {text} ×
          </button>
        );
      })}
      {[...TIMES, ...LINKED].some((name) => filters[name]) && (
        <button type="button" onClick={() => onChange({})}>
          {t.calls.filters.all}
        </button>
      )}
    </div>
  );
}

/** A filter of a link in words. */
function textOf(name: (typeof LINKED)[number], value: string): string {
  const { linked } = t.calls.filters;
  switch (name) {
    case "endedReason":
      return linked.endedReason(t.call.endedReason[value] ?? value);
    case "phoneNumberId":
      return linked.phoneNumberId;
    case "minResponseGapMs":
      return linked.minResponseGapMs(value);
    default:
      return linked[name](value === "true");
  }
}

/** An instant on the browser's clock, as a field of the type `datetime-local` takes it; "" if it is none. */
function localOf(instant: string | undefined): string {
  const ms = Date.parse(instant ?? "");
  if (Number.isNaN(ms)) return "";
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

function instantOf(local: string): string {
  return local === "" ? "" : new Date(local).toISOString();
}

function agentOf(call: Call, agents: readonly Agent[]): string {
  return agents.find((agent) => agent.id === call.agentId)?.name ?? t.calls.deletedAgent;
}

/** `agents`: null while they are not known. */
function CallTable({ calls, agents }: { calls: readonly Call[]; agents: readonly Agent[] | null }) {
  const { columns } = t.calls;
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            {Object.values(columns).map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {calls.map((call) => (
            <tr key={call.id}>
              <td>
                <a href={`/calls/${call.id}`}>
                  <Time iso={call.createdAt} />
                </a>
              </td>
              <td>{directionOf(call)}</td>
              <td class="clip">{partyOf(call)}</td>
              <td class="clip">{call.calledNumber}</td>
              <td class="clip">{agents && agentOf(call, agents)}</td>
              <td>
                <StatusBadge status={call.status} />
              </td>
              <td class="figure">{call.durationSeconds === null ? "" : duration(call.durationSeconds)}</td>
              <td class="figure">{call.turnCount}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
