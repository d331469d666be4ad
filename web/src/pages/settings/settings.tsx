/** API keys, the organization, the audit log, and the sessions of the user. */

import { useSignal } from "@preact/signals";

import { useSaving } from "../../api/saving";
import { signOut } from "../../app/session";
import { useTitle } from "../../app/title";
import { Tabs } from "../../components/tabs";
import { t } from "../../texts";
import { ApiKeys } from "./api_keys";
import { AuditLog } from "./audit";
import { OrganizationSettings } from "./organization";

const TABS = ["keys", "organization", "audit", "session"] as const;

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
        {/* A new key and unsaved changes outlast a look at another tab. */}
        <div hidden={tab.value !== "keys"}>
          <ApiKeys />
        </div>
        <div hidden={tab.value !== "organization"}>
          <OrganizationSettings shown={tab.value === "organization"} />
        </div>
        {tab.value === "audit" && <AuditLog />}
        <div hidden={tab.value !== "session"}>
          <SignOutEverywhere />
        </div>
      </Tabs>
    </>
  );
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
