/** Models: what calls can have now; for operators also what is installed, what can be downloaded, and remote models. */

import { hasRole } from "../../app/session";
import { useTab } from "../../app/tab";
import { useTitle } from "../../app/title";
import { LoadedView } from "../../components/loaded_view";
import { Tabs } from "../../components/tabs";
import { t } from "../../texts";
import { AvailableModels } from "./available";
import { ModelsInUse } from "./in_use";
import { InstalledModels } from "./installed";
import { useLocalModels } from "./local_models";
import { RemoteModels } from "./remote";

const TABS = ["inUse", "installed", "available", "remote"] as const;

export default function ModelsPage() {
  useTitle(t.models.title);
  return (
    <>
      <h1>{t.models.title}</h1>
      {hasRole("operator") ? (
        <OperatorsView />
      ) : (
        <>
          <p class="quiet">{t.models.operatorsOnly}</p>
          <ModelsInUse />
        </>
      )}
    </>
  );
}

function OperatorsView() {
  const [tab, show] = useTab(TABS, "inUse");
  const models = useLocalModels();
  return (
    <Tabs
      label={t.models.title}
      tabs={TABS.map((name) => [name, t.models.tabs[name]] as const)}
      selected={tab}
      onSelect={show}
    >
      {tab === "inUse" && <ModelsInUse />}
      {/* An upload outlasts a look at another tab. */}
      <div hidden={tab !== "installed"}>
        <LoadedView resource={models}>
          {(all) => <InstalledModels models={all} onImported={models.reload} />}
        </LoadedView>
      </div>
      {tab === "available" && <LoadedView resource={models}>{(all) => <AvailableModels models={all} />}</LoadedView>}
      {/* So does what is typed into a form. */}
      <div hidden={tab !== "remote"}>
        <RemoteModels />
      </div>
    </Tabs>
  );
}
