/** The page of one agent: its settings, its versions, and a place to try it. */

import { useEffect, useMemo } from "preact/hooks";
import { useLocation } from "preact-iso";

import { get, queryString } from "../../api/client";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { useUnsavedChanges } from "../../app/leave_guard";
import { hasRole } from "../../app/session";
import { useTitle } from "../../app/title";
import { Failure, LoadedView } from "../../components/loaded_view";
import { Tabs } from "../../components/tabs";
import { type TurnSettingName, turnSettingsOf } from "../../components/turn_settings";
import { t } from "../../texts";
import { Chat } from "../chat_test/chat";
import { ChatTestPanel } from "../chat_test/chat_test_panel";
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
  const filledIn = useFilledIn(draft);
  const agent = draft.stored.value;
  const tab: Tab = TABS.find((each) => each === query.tab) ?? (query.version ? "versions" : "settings");
  const chat = useChat();
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
      {filledIn && draft.changed.value.length > 0 && <p class="notice">{t.agents.filledIn}</p>}
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
        {tab === "try" && <TryIt draft={draft} chat={chat} />}
      </Tabs>
    </article>
  );
}

/** Begin with the turn settings of the address, and show them. Returns whether it has some. */
function useFilledIn(draft: Draft): boolean {
  const { query } = useLocation();
  const given = useMemo(() => (draft.readOnly ? {} : turnSettingsOf(query)), []);
  const any = Object.keys(given).length > 0;
  useEffect(() => {
    for (const [name, value] of Object.entries(given)) draft.set(name as TurnSettingName, value);
    if (any) document.getElementById("listening")?.scrollIntoView();
  }, []);
  return any;
}

/** The chat of this page goes on while its other parts are shown, and ends with it. */
function useChat(): Chat {
  const chat = useMemo(() => new Chat(), []);
  useEffect(() => {
    const leave = () => chat.leave();
    addEventListener("pagehide", leave);
    return () => {
      removeEventListener("pagehide", leave);
      leave();
    };
  }, [chat]);
  return chat;
}

function TryIt({ draft, chat }: { draft: Draft; chat: Chat }) {
  const { id, version } = draft.stored.value;
  return (
    <>
      <p class="quiet">{draft.changed.value.length > 0 ? t.agents.tryIt.unsaved : t.agents.tryIt.text}</p>
      <div class="try-it">
        <TestCallPanel agentId={id} version={version} />
        <ChatTestPanel chat={chat} agentId={id} version={version} unsaved={{ fields: draft.body(), labelOf }} />
      </div>
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
