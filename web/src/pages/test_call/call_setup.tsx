/** What a test call is to be like, and the button that starts it. */

import { useSignal } from "@preact/signals";

import { getPage, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { CheckboxField, SelectField, TextAreaField } from "../../components/fields";
import { t } from "../../texts";
import { MicrophoneChoice, MicrophoneNotice } from "./microphone_choice";
import type { CallOrder, TestCall } from "./test_call";

type Direction = "inbound" | "outbound";

interface Props {
  call: TestCall;
  agentId: string;
  present: number;
}

export function CallSetup({ call, agentId, present }: Props) {
  const { testCall } = t;
  const direction = useSignal<Direction>("inbound");
  const version = useSignal(String(present));
  const variables = useSignal("");
  const badVariable = useSignal("");
  const telephone = useSignal(false);
  const deliverWebhook = useSignal(false);
  const refused = call.refusedFields.value;

  function start(event: SubmitEvent) {
    event.preventDefault();
    const parsed = parseVariables(variables.value);
    badVariable.value = typeof parsed === "string" ? testCall.badVariable(parsed) : "";
    if (typeof parsed === "string") return;
    const order: CallOrder = {
      agentId,
      version: version.value === String(present) ? null : Number(version.value),
      direction: direction.value,
      contextVariables: parsed,
      telephone: telephone.value,
      deliverWebhook: deliverWebhook.value,
    };
    void call.start(order);
  }

  return (
    <form onSubmit={start}>
      {call.phase.value === "idle" && <p class="quiet">{testCall.introduction}</p>}
      <MicrophoneNotice call={call} />
      {call.refusal.value !== "" && (
        <p class="problem" role="alert">
          {call.refusal.value}
        </p>
      )}
      <details>
        <summary>{testCall.options}</summary>
        <MicrophoneChoice call={call} />
        <SelectField
          label={testCall.direction}
          value={direction.value}
          onInput={(value) => {
            direction.value = value as Direction;
          }}
          options={Object.entries(testCall.directions)}
        />
        <VersionChoice
          agentId={agentId}
          present={present}
          value={version.value}
          onInput={(value) => {
            version.value = value;
          }}
        />
        <TextAreaField
          label={testCall.variables}
          help={testCall.variablesHelp}
          problem={badVariable.value || refused.contextVariables}
          value={variables.value}
          onInput={(value) => {
            variables.value = value;
          }}
          rows={3}
          code
        />
        <CheckboxField
          label={testCall.telephone}
          help={testCall.telephoneHelp}
          value={telephone.value}
          onInput={(value) => {
            telephone.value = value;
          }}
        />
        <CheckboxField
          label={testCall.webhooks}
          help={testCall.webhooksHelp}
          value={deliverWebhook.value}
          onInput={(value) => {
            deliverWebhook.value = value;
          }}
        />
      </details>
      <p class="actions">
        <button type="submit" class="primary">
          {call.phase.value === "ended" ? testCall.again : testCall.call}
        </button>
      </p>
    </form>
  );
}

interface VersionProps {
  agentId: string;
  present: number;
  value: string;
  onInput: (value: string) => void;
}

function VersionChoice({ agentId, present, value, onInput }: VersionProps) {
  const path = `/v1/agents/${encodeURIComponent(agentId)}/versions`;
  const versions = useResource(
    (signal) => getPage<Schemas["AgentVersion"]>(path, { limit: 100 }, signal),
    [agentId, present],
  );
  const loaded = versions.current.value;
  const older = loaded.state === "ready" ? loaded.value.data.map((each) => each.version) : [];
  const options = [
    [String(present), t.testCall.presentVersion(present)] as const,
    ...older.filter((each) => each < present).map((each) => [String(each), String(each)] as const),
  ];
  return <SelectField label={t.testCall.version} value={value} onInput={onInput} options={options} />;
}

/** Returns the variables, or the line that is none. */
function parseVariables(text: string): Record<string, string> | string {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const pairs = lines.map((line) => /^\s*(\w+)\s*=\s*(.*?)\s*$/.exec(line));
  const bad = pairs.indexOf(null);
  if (bad !== -1) return lines[bad] ?? "";
  return Object.fromEntries(pairs.map((pair) => [pair?.[1] ?? "", pair?.[2] ?? ""]));
}
