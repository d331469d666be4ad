/** The test call with one agent as a page of its own. */

import { get, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { useTitle } from "../../app/title";
import { LoadedView } from "../../components/loaded_view";
import { t } from "../../texts";
import { TestCallPanel } from "./test_call_panel";

type Agent = Schemas["Agent"];

export default function TestCallPage({ id }: { id: string }) {
  const agent = useResource((signal) => get<Agent>(`/v1/agents/${encodeURIComponent(id)}`, {}, signal), [id]);
  return <LoadedView resource={agent}>{(value) => <TitledPanel agent={value} />}</LoadedView>;
}

function TitledPanel({ agent }: { agent: Agent }) {
  useTitle(t.testCall.of(agent.name));
  return (
    <>
      <h1 class="clip">{t.testCall.of(agent.name)}</h1>
      <TestCallPanel agentId={agent.id} version={agent.version} />
    </>
  );
}
