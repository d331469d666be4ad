/** What can be done with a call that has ended: export it, delete it. */

import { useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";

import { download, type Schemas, write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { hasRole } from "../../app/session";
import { ConfirmDialog } from "../../components/dialog";
import { notify } from "../../components/notices";
import { t } from "../../texts";
import { absoluteTime } from "../../texts/format";
import { isChat, namedParty } from "./kind";

export function CallActions({ call }: { call: Schemas["Call"] }) {
  const { route } = useLocation();
  const asked = useSignal(false);
  const { busy, problem, run } = useSaving();
  if (call.endedReason === null || !hasRole("owner")) return null;

  const begun = absoluteTime(call.createdAt);

  async function destroy() {
    if (!(await run(() => write("DELETE", `/v1/calls/${call.id}`)))) return;
    notify(t.call.deleted);
    route("/calls");
  }

  return (
    <div class="actions">
      {!asked.value && <span class="problem">{problem}</span>}
      <button
        type="button"
        disabled={busy.value}
        onClick={() => void run(() => download(`/v1/calls/${call.id}/export`, `call-${call.id}.zip`))}
      >
        {t.call.export}
      </button>
      <button
        type="button"
        onClick={() => {
          asked.value = true;
        }}
      >
        {t.actions.delete}
      </button>
      {asked.value && (
        <ConfirmDialog
          title={isChat(call) ? t.call.confirmDeleteChat(begun) : t.call.confirmDelete(namedParty(call), begun)}
          text={t.call.confirmDeleteText}
          action={t.actions.delete}
          busy={busy.value}
          problem={problem.value}
          onConfirm={() => void destroy()}
          onClose={() => {
            asked.value = false;
          }}
        />
      )}
    </div>
  );
}
