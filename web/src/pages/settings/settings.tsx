/** API keys, users, the organization, the audit log, and the sessions of the own user. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";

import { useSaving } from "../../api/saving";
import { signOut } from "../../app/session";
import { useTitle } from "../../app/title";
import { Tabs } from "../../components/tabs";
import { t } from "../../texts";
import { ApiKeys } from "./api_keys";
import { AuditLog } from "./audit";
import { OrganizationSettings } from "./organization";
import { Users } from "./users";

const TABS = ["keys", "users", "organization", "audit", "session"] as const;

export default function SettingsPage() {
  useTitle(t.settings.title);
  const tab = useSignal<(typeof TABS)[number]>("keys");
  return (
    <>
      <h1>{t.settings.title}</h1>
      <Tabs
        label={t.settings.title}
        tabs={TABS.map((name) => [name, t.settings.tabs[name]] as const)}
        selected={tab.value}
        onSelect={(name) => {
          tab.value = name;
        }}
      >
        <Panel shown={tab.value === "keys"}>
          <ApiKeys />
        </Panel>
        <Panel shown={tab.value === "users"}>
          <Users />
        </Panel>
        <Panel shown={tab.value === "organization"}>
          <OrganizationSettings shown={tab.value === "organization"} />
        </Panel>
        {tab.value === "audit" && <AuditLog />}
        <Panel shown={tab.value === "session"}>
          <SignOutEverywhere />
        </Panel>
      </Tabs>
    </>
  );
}

/** Begins when it is first shown. A new key, a link and unsaved changes outlast a look at another tab. */
function Panel({ shown, children }: { shown: boolean; children: ComponentChildren }) {
  const begun = useRef(false);
  begun.current ||= shown;
  return <div hidden={!shown}>{begun.current && children}</div>;
}

function SignOutEverywhere() {
  const { busy, problem, run } = useSaving();
  return (
    <section class="panel">
      <h2>{t.settings.session.everywhere}</h2>
      <p>{t.settings.session.explanation}</p>
      <p class="problem" role="alert">
        {problem}
      </p>
      <div class="actions">
        <button type="button" disabled={busy.value} onClick={() => void run(() => signOut(true))}>
          {t.settings.session.everywhere}
        </button>
      </div>
    </section>
  );
}
