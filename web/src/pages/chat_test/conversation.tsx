/** What was written and answered; each turn of the user can be written again. */

import { useEffect, useRef } from "preact/hooks";

import { t } from "../../texts";
import { ToolCall } from "../calls/transcript/tool_call";
import type { Chat, Reply, Turn } from "./chat";
import { MAX_MESSAGE, sendAtEnter } from "./message_form";

export function Conversation({ chat }: { chat: Chat }) {
  const box = useRef<HTMLDivElement>(null);
  const turns = chat.turns.value;
  useEffect(() => {
    box.current?.scrollTo({ top: box.current.scrollHeight });
  }, [turns]);
  const { chatTest } = t;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: keys scroll it
    <div ref={box} class="live-conversation" role="log" aria-label={chatTest.conversation} tabIndex={0}>
      {turns.length === 0 && chat.opening.value.length === 0 && <p class="quiet">{chatTest.empty}</p>}
      <ol class="transcript">
        {chat.opening.value.map((words, index) => (
          <li key={`opening ${index}`} class="entry entry-assistant">
            <div class="entry-head">{t.testCall.roles.assistant}</div>
            <p>{words}</p>
          </li>
        ))}
        {turns.map((turn) => (
          <TurnEntries key={turn.number} chat={chat} turn={turn} isLast={turn === turns.at(-1)} />
        ))}
      </ol>
    </div>
  );
}

function TurnEntries({ chat, turn, isLast }: { chat: Chat; turn: Turn; isLast: boolean }) {
  const { chatTest } = t;
  const waits = chat.phase.value === "answering" && isLast;
  return (
    <>
      <li class="entry entry-user">
        {chat.edited.value === turn.number ? (
          <EditForm chat={chat} turn={turn} isLast={isLast} />
        ) : (
          <>
            <div class="entry-head">
              <span>{t.testCall.roles.user}</span>
              {chat.phase.value === "open" && (
                <button
                  type="button"
                  class="link"
                  aria-label={chatTest.editTurn(turn.number)}
                  onClick={() => chat.edit(turn)}
                >
                  {t.actions.edit}
                </button>
              )}
            </div>
            <p class="written">{turn.content}</p>
          </>
        )}
      </li>
      {turn.reply !== null && <Answer reply={turn.reply} />}
      {turn.reply === null && !waits && (
        <li class="entry entry-assistant">
          <p class="quiet">{chatTest.noAnswer}</p>
          {isLast && chat.isOpen && (
            <button type="button" onClick={() => void chat.lookAgain()}>
              {chatTest.lookAgain}
            </button>
          )}
        </li>
      )}
    </>
  );
}

function Answer({ reply }: { reply: Reply }) {
  const { chatTest } = t;
  const times = [
    reply.responseGapMs === null ? "" : t.call.turns.gap(reply.responseGapMs),
    reply.durationMs > 0 ? chatTest.complete(reply.durationMs) : "",
  ].filter((each) => each !== "");
  return (
    <li class="entry entry-assistant">
      <div class="entry-head">
        <span>{t.testCall.roles.assistant}</span>
        <span class="figure">{times.join(" · ")}</span>
      </div>
      {reply.tools.map((tool, index) => (
        <ToolCall key={index} {...tool} />
      ))}
      <p class="written">{reply.content === "" ? <span class="quiet">{chatTest.saidNothing}</span> : reply.content}</p>
      {reply.sources.length > 0 && (
        <ul class="turn-details quiet">
          {reply.sources.map((source) => (
            <li key={`${source.documentId} ${source.position}`}>
              {t.call.turns.source(source.document, source.position + 1, source.score)}
            </li>
          ))}
        </ul>
      )}
    </li>
  );
}

function EditForm({ chat, turn, isLast }: { chat: Chat; turn: Turn; isLast: boolean }) {
  const { chatTest } = t;
  const text = chat.editedText;
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);
  const cancel = () => {
    chat.edited.value = null;
  };

  function send(event: Event) {
    event.preventDefault();
    if (text.value.trim() !== "") void chat.send(text.value.trim());
  }

  return (
    <form onSubmit={send}>
      <textarea
        ref={field}
        aria-label={chatTest.editTurn(turn.number)}
        rows={2}
        maxLength={MAX_MESSAGE}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
        }}
        onKeyDown={(event) => {
          if (event.key === "Escape") cancel();
          else sendAtEnter(event);
        }}
      />
      {!isLast && <p class="help">{chatTest.editHelp}</p>}
      <div class="actions">
        <button type="button" onClick={cancel}>
          {t.actions.cancel}
        </button>
        <button type="submit" class="primary" disabled={text.value.trim() === ""}>
          {chatTest.sendEdited}
        </button>
      </div>
    </form>
  );
}
