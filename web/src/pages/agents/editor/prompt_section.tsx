/** What the agent is told, and how it begins a call. */

import { t } from "../../../texts";
import type { Choices } from "../choices";
import type { Draft } from "./draft";
import { DraftFlag, DraftNumber, DraftSelect, DraftText } from "./draft_fields";
import { GreetingPreview } from "./greeting_preview";
import { VariableText } from "./variable_text";

export function PromptSection({ draft, choices }: { draft: Draft; choices: Choices }) {
  const { fields, serverDefault } = t.agents;
  const { firstSpeaker } = draft.values.value;
  const speaksFirst = firstSpeaker === "agent";
  return (
    <>
      <DraftText draft={draft} name="name" maxLength={255} required />
      <DraftFlag draft={draft} name="isActive" />
      <VariableText draft={draft} name="systemPrompt" maxLength={32_000} rows={16} />
      <DraftSelect
        draft={draft}
        name="slmModelId"
        options={[["", serverDefault], ...choices.models.map(({ id, name }) => [id, name] as const)]}
      />
      <DraftSelect
        draft={draft}
        name="firstSpeaker"
        options={[
          ["user", fields.firstSpeaker.user],
          ["agent", fields.firstSpeaker.agent],
        ]}
      />
      <DraftFlag draft={draft} name="agentGreetingEnabled" disabled={!speaksFirst} />
      <VariableText draft={draft} name="agentGreeting" maxLength={1000} />
      <GreetingPreview draft={draft} />
      <DraftFlag draft={draft} name="firstMessageUninterruptible" disabled={!speaksFirst} />
      <DraftNumber draft={draft} name="firstMessageDelay" min={0} max={10_000} disabled={!speaksFirst} />
    </>
  );
}
