/** The versions of an agent, newest first: who saved what when, the difference of any two, and the way back. */

import { useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";

import { getPage, queryString, type Schemas, write } from "../../../api/client";
import { useResource } from "../../../api/resource";
import { useSaving } from "../../../api/saving";
import { ConfirmDialog } from "../../../components/dialog";
import { NumberField } from "../../../components/fields";
import { LoadedView } from "../../../components/loaded_view";
import { notify } from "../../../components/notices";
import { Paging } from "../../../components/paging";
import { Time } from "../../../components/time";
import { t } from "../../../texts";
import type { Choices } from "../choices";
import type { Agent, Draft } from "../editor/draft";
import { labelOf } from "../editor/editor";
import { Difference } from "./difference";

type Version = Schemas["AgentVersion"];

const PAGE_SIZE = 20;

export function VersionList({ draft, choices }: { draft: Draft; choices: Choices }) {
  const { query, route } = useLocation();
  const agent = draft.stored.value;
  const offset = useSignal(0);
  const asked = useSignal<number | null>(null);
  const versions = useResource(
    (signal) => getPage<Version>(`/v1/agents/${agent.id}/versions`, { limit: PAGE_SIZE, offset: offset.value }, signal),
    [agent.id, agent.version, offset.value],
  );
  const to = Number.parseInt(query.version ?? "", 10) || agent.version;
  const from = Number.parseInt(query.from ?? "", 10) || Math.max(1, to - 1);
  const compare = (first: number, second: number) =>
    route(`/agents/${agent.id}${queryString({ tab: "versions", version: second, from: first })}`);
  const texts = t.agents.versions;
  return (
    <>
      <p class="quiet">{texts.newCallsOnly}</p>
      <LoadedView resource={versions}>
        {(page) => (
          <>
            <div class="scroll">
              <table>
                <thead>
                  <tr>
                    {Object.values(texts.columns).map((name) => (
                      <th key={name} scope="col">
                        {name}
                      </th>
                    ))}
                    {!draft.readOnly && <td />}
                  </tr>
                </thead>
                <tbody>
                  {page.data.map(({ version, author, createdAt, changes }) => (
                    <tr key={version}>
                      <td>
                        <button
                          type="button"
                          class="link"
                          aria-label={texts.show(version)}
                          onClick={() => compare(Math.max(1, version - 1), version)}
                        >
                          {version}
                        </button>{" "}
                        {version === agent.version && <span class="badge badge-good">{texts.current}</span>}
                      </td>
                      <td>
                        <Time iso={createdAt} />
                      </td>
                      <td class="clip">{author ?? texts.unknownAuthor}</td>
                      <td class="changes">{version === 1 ? texts.first : changes.map(labelOf).join(", ")}</td>
                      {!draft.readOnly && (
                        <td>
                          {version !== agent.version && (
                            <button
                              type="button"
                              onClick={() => {
                                asked.value = version;
                              }}
                            >
                              {texts.restore(version)}
                            </button>
                          )}
                        </td>
                      )}
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
            <Paging
              label={t.agents.tabs.versions}
              page={page}
              size={PAGE_SIZE}
              onMove={(first) => {
                offset.value = first;
              }}
            />
          </>
        )}
      </LoadedView>
      <div class="field-grid comparison">
        <NumberField
          label={texts.from}
          min={1}
          max={agent.version}
          value={from}
          onInput={(value) => value !== null && compare(value, to)}
        />
        <NumberField
          label={texts.to}
          min={1}
          max={agent.version}
          value={to}
          onInput={(value) => value !== null && compare(from, value)}
        />
      </div>
      <Difference agentId={agent.id} from={from} to={to} choices={choices} />
      {asked.value !== null && (
        <RestoreDialog
          draft={draft}
          version={asked.value}
          onClose={() => {
            asked.value = null;
          }}
        />
      )}
    </>
  );
}

function RestoreDialog({ draft, version, onClose }: { draft: Draft; version: number; onClose: () => void }) {
  const agent = draft.stored.value;
  const texts = t.agents.versions;
  const { busy, problem, fields, run } = useSaving();
  const unsaved = draft.changed.value.length > 0;

  async function restore() {
    let restored: Agent | undefined;
    const done = await run(async () => {
      restored = await write<Agent>("POST", `/v1/agents/${agent.id}/versions/${version}/restore`);
    });
    if (!done || restored === undefined) return;
    draft.accept(restored);
    notify(texts.restored(version, restored.version));
    onClose();
  }

  const refused = Object.entries(fields.value).map(([field, message]) => `${labelOf(field)}: ${message}`);
  return (
    <ConfirmDialog
      title={texts.confirmRestore(version, agent.name)}
      text={[texts.confirmRestoreText(agent.version + 1), unsaved ? texts.discards : ""].join(" ")}
      action={texts.restore(version)}
      busy={busy.value}
      problem={[problem.value, ...refused].join(" ")}
      onConfirm={() => void restore()}
      onClose={onClose}
    />
  );
}
