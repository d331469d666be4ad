/** Which version of an agent is tried. */

import { getPage, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { SelectField } from "../../components/fields";
import { t } from "../../texts";

interface Props {
  agentId: string;
  /** The agent's present version. */
  present: number;
  value: string;
  onInput: (value: string) => void;
  /** Value and text of what can be tried besides the versions. */
  others?: readonly (readonly [string, string])[];
}

export function VersionChoice({ agentId, present, value, onInput, others = [] }: Props) {
  const path = `/v1/agents/${encodeURIComponent(agentId)}/versions`;
  const versions = useResource(
    (signal) => getPage<Schemas["AgentVersion"]>(path, { limit: 100 }, signal),
    [agentId, present],
  );
  const loaded = versions.current.value;
  const older = loaded.state === "ready" ? loaded.value.data.map((each) => each.version) : [];
  const options = [
    ...others,
    [String(present), t.testCall.presentVersion(present)] as const,
    ...older.filter((each) => each < present).map((each) => [String(each), String(each)] as const),
  ];
  return <SelectField label={t.testCall.version} value={value} onInput={onInput} options={options} />;
}
