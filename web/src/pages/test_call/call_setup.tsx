/** What a test call is to be like, and the button that starts it. */

import { useSignal } from "@preact/signals";

import { CheckboxField, SelectField } from "../../components/fields";
import { t } from "../../texts";
import { ContextVariablesField, useContextVariables } from "./context_variables";
import { MicrophoneChoice, MicrophoneNotice } from "./microphone_choice";
import type { CallOrder, TestCall } from "./test_call";
import { VersionChoice } from "./version_choice";

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
  const variables = useContextVariables();
  const telephone = useSignal(false);
  const deliverWebhook = useSignal(false);
  const refused = call.refusedFields.value;

  function start(event: SubmitEvent) {
    event.preventDefault();
    const contextVariables = variables.parse();
    if (contextVariables === null) return;
    const order: CallOrder = {
      agentId,
      version: version.value === String(present) ? null : Number(version.value),
      direction: direction.value,
      contextVariables,
      telephone: telephone.value,
      deliverWebhook: deliverWebhook.value,
    };
    void call.start(order);
  }

  return (
    <form onSubmit={start}>
      {call.phase.value === "idle" && <p class="quiet">{testCall.introduction}</p>}
      <MicrophoneNotice phone={call.phone} />
      {call.refusal.value !== "" && (
        <p class="problem" role="alert">
          {call.refusal.value}
        </p>
      )}
      <details>
        <summary>{testCall.options}</summary>
        <MicrophoneChoice phone={call.phone} />
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
        <ContextVariablesField variables={variables} refused={refused.contextVariables} />
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
