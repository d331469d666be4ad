/** One phone number: its state, its settings, a test, refused calls and the configuration of the PBX. */

import { useLocation } from "preact-iso";

import { get } from "../../api/client";
import { eventsArrive, LIST_PATIENCE_MS, useEvents } from "../../api/events";
import { useResource } from "../../api/resource";
import { hasRole } from "../../app/session";
import { useTab } from "../../app/tab";
import { DeleteButton } from "../../components/deletion";
import { LoadedView } from "../../components/loaded_view";
import { Tabs } from "../../components/tabs";
import { Time } from "../../components/time";
import { TrunkState } from "../../components/trunk_state";
import { t } from "../../texts";
import { CallMe } from "./call_me";
import { NumberForm } from "./number_form";
import { PbxConfiguration } from "./pbx_configuration";
import type { Agent, PhoneNumber } from "./phone_numbers";
import { RefusedCalls } from "./refused_calls";

const TABS = ["settings", "test", "refused", "pbx"] as const;

export function NumberDetails({ id, agents }: { id: string; agents: readonly Agent[] }) {
  const number = useResource(
    async (signal) => {
      await eventsArrive(LIST_PATIENCE_MS);
      return await get<PhoneNumber>(`/v1/phone-numbers/${encodeURIComponent(id)}`, {}, signal);
    },
    [id],
  );
  useEvents({
    "number.updated": (changed) => {
      if (changed.id === id) number.reload();
    },
    resync: number.reload,
  });
  const [tab, show] = useTab(TABS, "settings");
  return (
    <LoadedView resource={number}>
      {(value) => (
        <>
          <Heading number={value} onCheck={number.reload} />
          <Tabs
            label={value.number}
            tabs={TABS.map((name) => [name, t.phoneNumbers.tabs[name]] as const)}
            selected={tab}
            onSelect={show}
          >
            {/* Unsaved changes outlast a look at another tab. */}
            <div hidden={tab !== "settings"}>
              <NumberForm key={value.id} number={value} agents={agents} onSaved={number.reload} />
            </div>
            {tab === "test" && <CallMe number={value} />}
            {tab === "refused" && (
              <>
                <p class="quiet">{t.phoneNumbers.refused.help}</p>
                <RefusedCalls numberId={value.id} />
              </>
            )}
            {tab === "pbx" && <PbxConfiguration id={value.id} />}
          </Tabs>
        </>
      )}
    </LoadedView>
  );
}

function Heading({ number, onCheck }: { number: PhoneNumber; onCheck: () => void }) {
  const { route } = useLocation();
  return (
    <>
      <div class="title-bar">
        <h1>{number.name === null ? number.number : `${number.number} · ${number.name}`}</h1>
        <div class="actions">
          <button type="button" onClick={onCheck}>
            {t.phoneNumbers.checkAgain}
          </button>
          <DeleteButton
            path={`/v1/phone-numbers/${number.id}`}
            name={number.number}
            question={t.phoneNumbers.confirmDelete(number.number)}
            consequence={t.phoneNumbers.confirmDeleteText}
            disabled={!hasRole("owner")}
            onDeleted={() => route("/phone-numbers")}
          />
        </div>
      </div>
      <p>
        <TrunkState number={number} /> <bdi>{number.sipStatusDetail}</bdi>{" "}
        {number.sipStatusSince !== null && (
          <span class="quiet">
            {t.phoneNumbers.since} <Time iso={number.sipStatusSince} />
          </span>
        )}
      </p>
      {!hasRole("owner") && <p class="quiet">{t.phoneNumbers.ownersOnly}</p>}
    </>
  );
}
