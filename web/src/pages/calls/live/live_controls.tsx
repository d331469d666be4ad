/** What a person can do in a live call: listen in, write a note to the agent, and take the call over. */

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import { type Schemas, write } from "../../../api/client";
import { useSaving } from "../../../api/saving";
import { hasRole } from "../../../app/session";
import { TextField } from "../../../components/fields";
import { notify } from "../../../components/notices";
import { t } from "../../../texts";
import { Listening } from "./listening";
import { useListeningPermitted } from "./listening_permission";
import { TakeoverPanel } from "./takeover_panel";

const MAX_NOTE = 2000;

/** Nothing, unless the call is in progress. */
export function LiveControls({ call }: { call: Schemas["Call"] }) {
  const talking = useSignal(false);
  if (call.status !== "in_progress" || call.endedReason !== null) return null;
  const { live } = t.call;
  return (
    <section class="panel" aria-label={live.title}>
      <h2>{live.title}</h2>
      {hasRole("editor") ? (
        <>
          {!talking.value && <ListenButton call={call} />}
          <TakeoverPanel
            call={call}
            onTalking={() => {
              talking.value = true;
            }}
          />
          {!talking.value && <WhisperForm call={call} />}
        </>
      ) : (
        <p class="quiet">{live.needsEditor}</p>
      )}
    </section>
  );
}

function ListenButton({ call }: { call: Schemas["Call"] }) {
  const listening = useMemo(() => new Listening(), [call.id]);
  useEffect(() => () => listening.stop(), [listening]);
  const permitted = useListeningPermitted();
  const { live } = t.call;
  const on = listening.state.value === "on" || listening.state.value === "connecting";
  return (
    <div class="live-controls">
      <button
        type="button"
        aria-pressed={on}
        disabled={!permitted}
        onClick={() => {
          if (on) listening.stop();
          else void listening.start(call.id);
        }}
      >
        {on ? live.stopListening : live.listen}
      </button>
      <span role="status" class="quiet">
        {permitted ? live.states[listening.state.value] : live.notPermitted}
      </span>
      <span role="alert" class="problem">
        {listening.problem.value}
      </span>
    </div>
  );
}

function WhisperForm({ call }: { call: Schemas["Call"] }) {
  const note = useSignal("");
  const { busy, problem, fields, run } = useSaving();
  const { live } = t.call;

  async function send(event: Event) {
    event.preventDefault();
    const content = note.value;
    if (!(await run(() => write("POST", `/v1/calls/${call.id}/whisper`, { content })))) return;
    note.value = "";
    notify(live.whispered);
  }

  return (
    <form onSubmit={(event) => void send(event)}>
      <TextField
        label={live.note}
        help={live.noteHelp}
        value={note.value}
        maxLength={MAX_NOTE}
        required
        problem={fields.value.content ?? problem.value}
        onInput={(value) => {
          note.value = value;
        }}
      />
      <div class="actions">
        <button type="submit" disabled={busy.value || note.value === ""}>
          {live.whisper}
        </button>
      </div>
    </form>
  );
}
