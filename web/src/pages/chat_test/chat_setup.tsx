/** With what a chat begins, and the button that begins it. */

import { useSignal } from "@preact/signals";

import { t } from "../../texts";
import { ContextVariablesField, useContextVariables } from "../test_call/context_variables";
import { VersionChoice } from "../test_call/version_choice";
import type { Chat, ChatOrder } from "./chat";

/** What the page's form has changed and not saved. */
export interface UnsavedChanges {
  /** The body of a PATCH; empty if nothing is changed. */
  fields: Record<string, unknown>;
  labelOf: (field: string) => string;
}

interface Props {
  chat: Chat;
  agentId: string;
  present: number;
  unsaved: UnsavedChanges;
}

const UNSAVED = "unsaved";
const OF_THE_DRAFT = "agent.";

export function ChatSetup({ chat, agentId, present, unsaved }: Props) {
  const { chatTest } = t;
  const chosen = useSignal<string | null>(null);
  const variables = useContextVariables();
  const isChanged = Object.keys(unsaved.fields).length > 0;
  const standard = isChanged ? UNSAVED : String(present);
  const version = chosen.value === UNSAVED && !isChanged ? standard : (chosen.value ?? standard);

  function start(event: SubmitEvent) {
    event.preventDefault();
    const contextVariables = variables.parse();
    if (contextVariables === null) return;
    const order: ChatOrder = { agentId, contextVariables };
    if (version === UNSAVED) order.agent = unsaved.fields as NonNullable<ChatOrder["agent"]>;
    else if (version !== String(present)) order.version = Number(version);
    void chat.start(order);
  }

  return (
    <form onSubmit={start}>
      {chat.phase.value === "idle" && <p class="quiet">{chatTest.introduction}</p>}
      <Refusal chat={chat} unsaved={unsaved} />
      <details open={isChanged}>
        <summary>{t.testCall.options}</summary>
        <VersionChoice
          agentId={agentId}
          present={present}
          value={version}
          onInput={(value) => {
            chosen.value = value;
          }}
          others={isChanged ? [[UNSAVED, chatTest.unsaved]] : []}
        />
        <ContextVariablesField variables={variables} refused={chat.refusedFields.value.contextVariables} />
      </details>
      <p class="actions">
        <button type="submit" class="primary" disabled={chat.phase.value === "opening"}>
          {chat.phase.value === "ended" ? chatTest.again : chatTest.start}
        </button>
      </p>
      <p class="quiet" role="status">
        {chat.phase.value === "opening" && chatTest.opening}
      </p>
    </form>
  );
}

function Refusal({ chat, unsaved }: { chat: Chat; unsaved: UnsavedChanges }) {
  const ofDraft = Object.entries(chat.refusedFields.value).filter(([field]) => field.startsWith(OF_THE_DRAFT));
  if (chat.problem.value === "") return null;
  return (
    <div class="problem" role="alert">
      {chat.problem.value}
      <ul>
        {ofDraft.map(([field, message]) => (
          <li key={field}>
            {unsaved.labelOf(field.slice(OF_THE_DRAFT.length).split(".")[0] ?? "")}: {message}
          </li>
        ))}
      </ul>
    </div>
  );
}
