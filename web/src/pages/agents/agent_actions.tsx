/** What can be done with a whole agent: duplicate it, delete it. */

import { useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";

import { everything, type Schemas, write } from "../../api/client";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { mayLeave } from "../../app/leave_guard";
import { hasRole } from "../../app/session";
import { ConfirmDialog, Dialog } from "../../components/dialog";
import { TextField } from "../../components/fields";
import { LoadedView } from "../../components/loaded_view";
import { notify } from "../../components/notices";
import { t } from "../../texts";
import { type Agent, bodyOf } from "./editor/draft";

export function AgentActions({ agent }: { agent: Agent }) {
  const asked = useSignal<"duplicate" | "delete" | null>(null);
  if (!hasRole("editor")) return null;
  const close = () => {
    asked.value = null;
  };
  return (
    <div class="actions">
      <button
        type="button"
        onClick={() => {
          asked.value = "duplicate";
        }}
      >
        {t.agents.duplicate}
      </button>
      <button
        type="button"
        onClick={() => {
          asked.value = "delete";
        }}
      >
        {t.actions.delete}
      </button>
      {asked.value === "duplicate" && <DuplicateDialog agent={agent} onClose={close} />}
      {asked.value === "delete" && <DeleteDialog agent={agent} onClose={close} />}
    </div>
  );
}

function DuplicateDialog({ agent, onClose }: { agent: Agent; onClose: () => void }) {
  const { route } = useLocation();
  const name = useSignal(t.agents.duplicateName(agent.name).slice(0, 255));
  const { busy, problem, fields, run } = useSaving();

  async function duplicate() {
    let copy: Agent | undefined;
    const done = await run(async () => {
      copy = await write<Agent>("POST", "/v1/agents", { ...bodyOf(agent), name: name.value });
    });
    if (!done || copy === undefined) return;
    notify(t.agents.created(copy.name));
    onClose();
    if (mayLeave()) route(`/agents/${copy.id}`);
  }

  return (
    <Dialog title={t.agents.duplicateTitle(agent.name)} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void duplicate();
        }}
      >
        <p>{t.agents.duplicateText}</p>
        <TextField
          label={t.agents.newName}
          problem={fields.value.name}
          maxLength={255}
          required
          value={name.value}
          onInput={(value) => {
            name.value = value;
          }}
        />
        <div class="problem" role="alert">
          {problem.value && !fields.value.name && (
            <>
              {problem.value}
              <ul>
                {Object.entries(fields.value).map(([field, message]) => (
                  <li key={field}>{`${field}: ${message}`}</li>
                ))}
              </ul>
            </>
          )}
        </div>
        <div class="actions">
          <button type="button" onClick={onClose}>
            {t.actions.cancel}
          </button>
          <button type="submit" class="primary" disabled={busy.value}>
            {t.agents.duplicate}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function DeleteDialog({ agent, onClose }: { agent: Agent; onClose: () => void }) {
  const { route } = useLocation();
  const { busy, problem, run } = useSaving();
  const numbers = useResource((signal) => everything<Schemas["PhoneNumber"]>("/v1/phone-numbers", signal), []);

  async function destroy() {
    if (!(await run(() => write("DELETE", `/v1/agents/${agent.id}`)))) return;
    notify(t.actions.deleted(agent.name));
    route("/agents");
  }

  return (
    <LoadedView resource={numbers}>
      {(found) => {
        const used = found.filter((each) => each.agentId === agent.id).map((each) => each.number);
        return (
          <ConfirmDialog
            title={t.agents.confirmDelete(agent.name)}
            text={`${t.agents.confirmDeleteNumbers(used)} ${t.agents.confirmDeleteText}`}
            action={t.actions.delete}
            busy={busy.value}
            problem={problem.value}
            onConfirm={() => void destroy()}
            onClose={onClose}
          />
        );
      }}
    </LoadedView>
  );
}
