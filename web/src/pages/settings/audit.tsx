/** The audit log: who changed what, newest first. */

import { useSignal } from "@preact/signals";

import { getPage, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { hasRole, sessionState } from "../../app/session";
import { LoadedView } from "../../components/loaded_view";
import { Paging } from "../../components/paging";
import { Table } from "../../components/table";
import { Time } from "../../components/time";
import { t } from "../../texts";

type Entry = Schemas["AuditEntryView"];

const PAGE_SIZE = 50;
const texts = t.settings.audit;
const NO_FILTERS = { actor: "", objectType: "", from: "", to: "", scope: "" };
type Filters = typeof NO_FILTERS;

/** The page of an object that there still is. */
const PAGES: Readonly<Record<string, (id: string) => string>> = {
  agent: (id) => `/agents/${id}`,
  call: (id) => `/calls/${id}`,
  number: (id) => `/phone-numbers?number=${id}`,
  tool: (id) => `/tools?tool=${id}`,
};

export function AuditLog() {
  const filters = useSignal(NO_FILTERS);
  const offset = useSignal(0);
  const { value: chosen } = filters;
  const entries = useResource(
    (signal) =>
      getPage<Entry>("/v1/audit", { ...queryOf(chosen), limit: PAGE_SIZE, offset: offset.value || null }, signal),
    [JSON.stringify(chosen), offset.value],
  );

  function change(changed: Filters) {
    filters.value = changed;
    offset.value = 0;
  }

  return (
    <>
      <p class="quiet">{texts.introduction}</p>
      {hasRole("owner") && <FilterBar filters={chosen} onChange={change} />}
      <LoadedView resource={entries}>
        {(page) =>
          page.data.length === 0 ? (
            <p class="notice">{chosen === NO_FILTERS ? texts.empty : texts.noMatch}</p>
          ) : (
            <>
              <Entries entries={page.data} />
              <Paging
                label={t.settings.tabs.audit}
                page={page}
                size={PAGE_SIZE}
                previous={texts.previous}
                next={texts.next}
                onMove={(first) => {
                  offset.value = first;
                }}
              />
            </>
          )
        }
      </LoadedView>
    </>
  );
}

/** The parameters of the request; the times of the fields are those of the browser's clock. */
function queryOf({ from, to, ...others }: Filters): Record<string, string | null> {
  const given = Object.entries(others).map(([name, value]) => [name, value.trim() || null] as const);
  return { ...Object.fromEntries(given), from: instant(from), to: instant(to) };
}

function instant(local: string): string | null {
  const at = new Date(local);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}

function FilterBar({ filters, onChange }: { filters: Filters; onChange: (filters: Filters) => void }) {
  const times = [
    ["from", texts.from],
    ["to", texts.to],
  ] as const;
  return (
    <div class="filters">
      <label class="field-inline">
        {texts.columns.actor}
        <input
          type="search"
          maxLength={255}
          placeholder={texts.anybody}
          value={filters.actor}
          onChange={(event) => onChange({ ...filters, actor: event.currentTarget.value })}
        />
      </label>
      <label class="field-inline">
        {texts.about}
        <select
          value={filters.objectType}
          onChange={(event) => onChange({ ...filters, objectType: event.currentTarget.value })}
        >
          <option value="">{texts.anything}</option>
          {Object.entries(texts.objects).map(([value, name]) => (
            <option key={value} value={value}>
              {name}
            </option>
          ))}
        </select>
      </label>
      {times.map(([name, label]) => (
        <label key={name} class="field-inline">
          {label}
          <input
            type="datetime-local"
            value={filters[name]}
            onChange={(event) => onChange({ ...filters, [name]: event.currentTarget.value })}
          />
        </label>
      ))}
      {hasRole("operator") && (
        <label class="field-inline">
          <input
            type="checkbox"
            checked={filters.scope !== ""}
            onChange={(event) => onChange({ ...filters, scope: event.currentTarget.checked ? "installation" : "" })}
          />
          {texts.installation}
        </label>
      )}
    </div>
  );
}

function Entries({ entries }: { entries: readonly Entry[] }) {
  const { time, actor, action, object, fields, address } = texts.columns;
  return (
    <Table label={t.settings.tabs.audit} columns={[time, actor, action, object, fields, address]}>
      {entries.map((entry) => (
        <tr key={entry.id}>
          <td>
            <Time iso={entry.createdAt} />
          </td>
          <td class="clip">
            <ActorName actor={entry.actor} />
          </td>
          <td>{texts.actions[entry.action] ?? entry.action}</td>
          <td class="clip">
            <ObjectName entry={entry} />
          </td>
          <td class="changes">{entry.fields.join(", ") || entry.detail}</td>
          <td>{entry.clientAddress ?? <span class="quiet">{texts.noAddress}</span>}</td>
        </tr>
      ))}
    </Table>
  );
}

function ActorName({ actor: { type, name } }: { actor: Entry["actor"] }) {
  const kind = type === null ? "" : texts.actors[type];
  return name === "" ? (
    <span class="quiet">{kind}</span>
  ) : (
    <>
      <bdi>{name}</bdi> {kind !== "" && <span class="quiet">({kind})</span>}
    </>
  );
}

/** What a change is about, with a link to its page. */
function ObjectName({ entry }: { entry: Entry }) {
  const { object } = entry;
  if (object === null) return null;
  const name = object.name ?? texts.objects[object.type] ?? object.type;
  const page = entry.action.endsWith(".delete") || !isOwn(entry) ? undefined : PAGES[object.type];
  return page !== undefined && object.id !== null ? <a href={page(object.id)}>{name}</a> : <span>{name}</span>;
}

/** True for an entry of the organization whose pages are shown. */
function isOwn(entry: Entry): boolean {
  const { value } = sessionState;
  return value.state === "signedIn" && value.session.organization?.id === entry.organizationId;
}
