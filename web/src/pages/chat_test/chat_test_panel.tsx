/** A panel in which one writes to an agent instead of speaking. */

import { useEvents } from "../../api/events";
import { hasRole } from "../../app/session";
import { t } from "../../texts";
import type { Chat } from "./chat";
import { ChatSetup, type UnsavedChanges } from "./chat_setup";
import { Conversation } from "./conversation";
import { MessageForm } from "./message_form";

interface Props {
  chat: Chat;
  agentId: string;
  /** The agent's present version. */
  version: number;
  unsaved: UnsavedChanges;
}

export function ChatTestPanel({ chat, agentId, version, unsaved }: Props) {
  const { chatTest } = t;
  useEvents({ "call.ended": (call) => chat.onCall(call) });
  if (!hasRole("editor")) return <p class="notice">{chatTest.forbidden}</p>;
  const phase = chat.phase.value;
  const begun = chat.isOpen || phase === "ended";
  return (
    <section class="panel chat" aria-label={chatTest.title}>
      <h2>{chatTest.title}</h2>
      {chat.isOpen && (
        <div class="test-call-bar">
          <span class="badge badge-live" role="status">
            {phase === "answering" ? chatTest.answering : chatTest.open}
          </span>
          <button type="button" class="danger" onClick={() => void chat.end()}>
            {chatTest.end}
          </button>
        </div>
      )}
      {begun && <Conversation chat={chat} />}
      {chat.isOpen && <MessageForm key={chat.callId.value} chat={chat} />}
      {phase === "ended" && <ChatEnd chat={chat} />}
      {!chat.isOpen && <ChatSetup chat={chat} agentId={agentId} present={version} unsaved={unsaved} />}
    </section>
  );
}

function ChatEnd({ chat }: { chat: Chat }) {
  const { chatTest } = t;
  const reason = chat.endedReason.value;
  return (
    <p role="status">
      {reason === null || reason === "api_hangup"
        ? chatTest.over
        : chatTest.ended(chatTest.endedReason[reason] ?? t.call.endedReason[reason] ?? reason)}{" "}
      <a href={`/calls/${chat.callId.value}`}>{chatTest.openPage}</a>
    </p>
  );
}
