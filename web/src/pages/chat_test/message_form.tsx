/** The field for the next message: Enter sends it, Shift and Enter begin a line. */

import { useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";

import { t } from "../../texts";
import type { Chat } from "./chat";

/** Characters of a message. */
export const MAX_MESSAGE = 4000;

export function MessageForm({ chat }: { chat: Chat }) {
  const { chatTest } = t;
  const id = useId();
  const text = useSignal("");
  const field = useRef<HTMLTextAreaElement>(null);
  const edited = chat.edited.value;
  const answer = chat.turns.value.at(-1)?.reply;
  useEffect(() => {
    // What had the focus is gone: the button that began the chat, an edited message, the button that finds an answer.
    if (edited === null && document.activeElement === document.body) field.current?.focus();
  }, [edited, answer]);

  async function send(event: Event) {
    event.preventDefault();
    const content = text.value.trim();
    if (content === "" || chat.phase.value !== "open") return;
    chat.edited.value = null;
    text.value = "";
    if (!(await chat.send(content)) && text.value === "") text.value = content;
  }

  return (
    <form class="message-form" onSubmit={(event) => void send(event)}>
      <label for={id}>{chatTest.message}</label>
      <textarea
        id={id}
        ref={field}
        rows={2}
        maxLength={MAX_MESSAGE}
        aria-describedby={`${id}-help`}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
        }}
        onKeyDown={sendAtEnter}
      />
      <p id={`${id}-help`} class="help">
        {chatTest.messageHelp}
      </p>
      <p class="problem" role="alert">
        {chat.problem.value}
      </p>
      <div class="actions">
        <button type="submit" class="primary" disabled={chat.phase.value !== "open" || text.value.trim() === ""}>
          {chatTest.send}
        </button>
      </div>
    </form>
  );
}

/** Submit the form of a text area at Enter, unless an input method composes a word. */
export function sendAtEnter(event: KeyboardEvent & { currentTarget: HTMLTextAreaElement }): void {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  event.currentTarget.form?.requestSubmit();
}
