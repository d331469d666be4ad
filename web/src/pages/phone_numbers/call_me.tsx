/** The agent of a number calls a telephone over its trunk, as a test. */

import { useSignal } from "@preact/signals";

import { type Schemas, write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { hasRole } from "../../app/session";
import { TextField } from "../../components/fields";
import { t } from "../../texts";

export function CallMe({ number }: { number: Schemas["PhoneNumber"] }) {
  const texts = t.phoneNumbers.callMe;
  const to = useSignal("");
  const placed = useSignal<string | null>(null);
  const { busy, problem, fields, run } = useSaving();
  if (!hasRole("editor")) return <p class="notice">{texts.editorsOnly}</p>;
  if (number.agentId === null) return <p class="notice">{texts.needsAgent}</p>;

  async function call(event: Event) {
    event.preventDefault();
    placed.value = null;
    const body = { agentId: number.agentId, phoneNumberId: number.id, to: to.value.trim() };
    await run(async () => {
      placed.value = (await write<Schemas["Call"]>("POST", "/v1/calls", body)).id;
    });
  }

  return (
    <form class="panel" onSubmit={(event) => void call(event)}>
      <p>{texts.help}</p>
      <TextField
        label={texts.to}
        help={texts.toHelp}
        problem={fields.value.to}
        type="tel"
        required
        value={to.value}
        onInput={(value) => {
          to.value = value;
        }}
      />
      <p class="problem" role="alert">
        {problem}
      </p>
      <div class="actions">
        {placed.value !== null && (
          <span role="status">
            {texts.placed} <a href={`/calls/${placed.value}`}>{texts.open}</a>
          </span>
        )}
        <button type="submit" class="primary" disabled={busy.value}>
          {texts.submit}
        </button>
      </div>
    </form>
  );
}
