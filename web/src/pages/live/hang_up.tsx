/** Hangs a live call up, after a question that names it. */

import { useSignal } from "@preact/signals";

import { write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { hasRole } from "../../app/session";
import { ConfirmDialog } from "../../components/dialog";
import { notify } from "../../components/notices";
import { t } from "../../texts";
import { namedParty, type Party } from "../calls/kind";
import type { Call } from "./live_calls";

export function HangUp({ call }: { call: Party & Pick<Call, "id" | "state"> }) {
  const asked = useSignal(false);
  const { busy, problem, run } = useSaving();
  if (call.state === "ended") return null;
  const allowed = hasRole("editor");

  async function end() {
    if (!(await run(() => write("POST", `/v1/calls/${call.id}/hangup`)))) return;
    asked.value = false;
    notify(t.live.hungUp(namedParty(call)));
  }

  return (
    <>
      <button
        type="button"
        class="danger"
        disabled={!allowed}
        title={allowed ? undefined : t.live.hangUpNeeds}
        onClick={() => {
          asked.value = true;
        }}
      >
        {t.live.hangUp}
      </button>
      {asked.value && (
        <ConfirmDialog
          title={t.live.confirmHangUp(namedParty(call))}
          text={t.live.confirmHangUpText}
          action={t.live.hangUp}
          busy={busy.value}
          problem={problem.value}
          onConfirm={() => void end()}
          onClose={() => {
            asked.value = false;
          }}
        />
      )}
    </>
  );
}
