/** The page of one agent: its settings, its versions, and a place to try it. */

import { useMemo } from "preact/hooks";
import { useLocation } from "preact-iso";

import { get, queryString } from "../../api/client";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { hasRole } from "../../app/session";
import { useTitle } from "../../app/title";
import { useUnsavedChanges } from "../../app/unsaved_changes";
import { Failure, LoadedView } from "../../components/loaded_view";
import { Tabs } from "../../components/tabs";
import { t } from "../../texts";
import { TestCallPanel } from "../test_call/test_call_panel";
import { AgentActions } from "./agent_actions";
import { useChoices } from "./choices";
import { type Agent, Draft } from "./editor/draft";
import { Editor, labelOf } from "./editor/editor";
import { VersionList } from "./versions/version_list";

const TABS = ["settings", "versions", "try"] as const;
type Tab = (typeof TABS)[number];

export default function AgentPage({ id }: { id: string }) {
  const agent = useResource((signal) => get<Agent>(`/v1/agents/${encodeURIComponent(id)}`, {}, signal), [id]);
  return (
    <>
      <a class="back" href="/agents">
        {t.agents.back}
      </a>
      <LoadedView resource={agent}>{(value) => <AgentView key={value.id} loaded={value} />}</LoadedView>
    </>
  );
}

function AgentView({ loaded }: { loaded: Agent }) {
  const { query, route } = useLocation();
  const choices = useChoices();
  const saving = useSaving();
  const draft = useMemo(() => new Draft(loaded, !hasRole("editor"), saving.fields), []);
  const agent = draft.stored.value;
  const tab: Tab = TABS.find((each) => each === query.tab) ?? (query.version ? "versions" : "settings");
  useTitle(agent.name);
  useUnsavedChanges(draft.changed.value.length > 0);

  const show = (name: Tab) => route(`/agents/${agent.id}${queryString({ tab: name === "settings" ? null : name })}`);
  return (
    <article>
      <div class="title-bar">
        <h1 class="clip">{agent.name}</h1>
        <AgentActions agent={agent} />
      </div>
      {draft.readOnly && <p class="notice">{t.agents.readOnly}</p>}
      <Warnings agent={agent} />
      {choices.failure && <Failure error={choices.failure} />}
      <Tabs
        label={t.agents.tabs.label}
        tabs={TABS.map((each) => [each, t.agents.tabs[each]] as const)}
        selected={tab}
        onSelect={show}
      >
        {tab === "settings" && <Editor draft={draft} choices={choices} saving={saving} />}
        {tab === "versions" && <VersionList draft={draft} choices={choices} />}
        {tab === "try" && <TryIt draft={draft} />}
      </Tabs>
    </article>
  );
}

function TryIt({ draft }: { draft: Draft }) {
  const { id, version } = draft.stored.value;
  return (
    <>
      <p class="quiet">{draft.changed.value.length > 0 ? t.agents.tryIt.unsaved : t.agents.tryIt.text}</p>
      <TestCallPanel agentId={id} version={version} />
    </>
  );
}

function Warnings({ agent }: { agent: Agent }) {
  if (agent.warnings.length === 0) return null;
  return (
    <section class="notice notice-warning" aria-label={t.agents.warnings}>
      <strong>{t.agents.warnings}</strong>
      <ul>
        {agent.warnings.map(({ field, message }) => (
          <li key={field + message}>
            {labelOf(field)}: {message}
          </li>
        ))}
      </ul>
    </section>
  );
}
