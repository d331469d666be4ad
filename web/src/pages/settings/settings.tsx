/** API keys, users, the organization, the audit log, and the sessions of the own user. */

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";

import { useSaving } from "../../api/saving";
import { signOut } from "../../app/session";
import { useTab } from "../../app/tab";
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
  const [tab, show] = useTab(TABS, "keys");
  return (
    <>
      <h1>{t.settings.title}</h1>
      <Tabs
        label={t.settings.title}
        tabs={TABS.map((name) => [name, t.settings.tabs[name]] as const)}
        selected={tab}
        onSelect={show}
      >
        <Panel shown={tab === "keys"}>
          <ApiKeys />
        </Panel>
        <Panel shown={tab === "users"}>
          <Users />
        </Panel>
        <Panel shown={tab === "organization"}>
          <OrganizationSettings shown={tab === "organization"} />
        </Panel>
        {tab === "audit" && <AuditLog />}
        <Panel shown={tab === "session"}>
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
