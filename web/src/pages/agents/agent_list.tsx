/** The list of agents with a search by name, which stands in the address, and the dialog that creates one. */

import { useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";

import { getPage, queryString, type Schemas, write } from "../../api/client";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { hasRole } from "../../app/session";
import { useTitle } from "../../app/title";
import { Dialog } from "../../components/dialog";
import { TextField } from "../../components/fields";
import { LoadedView } from "../../components/loaded_view";
import { notify } from "../../components/notices";
import { Paging } from "../../components/paging";
import { Time } from "../../components/time";
import { t } from "../../texts";
import { choiceName, useChoices } from "./choices";

type Agent = Schemas["Agent"];

const PAGE_SIZE = 50;

export default function AgentListPage() {
  const { query, route } = useLocation();
  const creating = useSignal(false);
  const search = query.search ?? "";
  const offset = Number.parseInt(query.offset ?? "0", 10) || 0;
  const agents = useResource(
    (signal) => getPage<Agent>("/v1/agents", { search, limit: PAGE_SIZE, offset }, signal),
    [search, offset],
  );
  useTitle(t.agents.title);

  const show = (wanted: string, first = 0) => route(`/agents${queryString({ search: wanted, offset: first || null })}`);
  return (
    <>
      <div class="title-bar">
        <h1>{t.agents.title}</h1>
        {hasRole("editor") && (
          <button
            type="button"
            class="primary"
            onClick={() => {
              creating.value = true;
            }}
          >
            {t.agents.create}
          </button>
        )}
      </div>
      <div class="filters">
        <label class="field-inline">
          {t.agents.search}
          <input type="search" value={search} onInput={(event) => show(event.currentTarget.value)} />
        </label>
      </div>
      <LoadedView resource={agents}>
        {(page) =>
          page.data.length === 0 ? (
            <p class="notice">{search ? t.agents.noMatch(search) : t.agents.empty}</p>
          ) : (
            <>
              <AgentTable agents={page.data} />
              <Paging label={t.agents.title} page={page} size={PAGE_SIZE} onMove={(first) => show(search, first)} />
            </>
          )
        }
      </LoadedView>
      {creating.value && (
        <NewAgentDialog
          onClose={() => {
            creating.value = false;
          }}
        />
      )}
    </>
  );
}

function AgentTable({ agents }: { agents: readonly Agent[] }) {
  const { columns } = t.agents;
  const choices = useChoices();
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
          {agents.map((agent) => (
            <tr key={agent.id}>
              <td class="clip">
                <a href={`/agents/${agent.id}`}>{agent.name}</a>
              </td>
              <td>
                <span class={agent.isActive ? "badge badge-good" : "badge badge-idle"}>
                  {agent.isActive ? t.agents.active : t.agents.inactive}
                </span>
              </td>
              <td class="clip">{choiceName(choices.voices, agent.voiceId)}</td>
              <td class="clip">{choiceName(choices.models, agent.slmModelId)}</td>
              <td class="figure">{agent.version}</td>
              <td>
                <Time iso={agent.updatedAt} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function NewAgentDialog({ onClose }: { onClose: () => void }) {
  const { route } = useLocation();
  const name = useSignal("");
  const { busy, problem, fields, run } = useSaving();

  async function create() {
    let id = "";
    const done = await run(async () => {
      id = (await write<Agent>("POST", "/v1/agents", { name: name.value })).id;
    });
    if (!done) return;
    notify(t.agents.created(name.value));
    route(`/agents/${id}`);
  }

  return (
    <Dialog title={t.agents.create} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        <TextField
          label={t.agents.fields.name.label}
          help={t.agents.createHelp}
          problem={fields.value.name}
          required
          maxLength={255}
          value={name.value}
          onInput={(value) => {
            name.value = value;
          }}
        />
        <p class="problem" role="alert">
          {fields.value.name ? "" : problem}
        </p>
        <div class="actions">
          <button type="button" onClick={onClose}>
            {t.actions.cancel}
          </button>
          <button type="submit" class="primary" disabled={busy.value}>
            {t.agents.create}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
