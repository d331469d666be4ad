/** A button that deletes one thing, after it was asked what it destroys. */

import { useSignal } from "@preact/signals";

import { write } from "../api/client";
import { useSaving } from "../api/saving";
import { t } from "../texts";
import { ConfirmDialog } from "./dialog";
import { notify } from "./notices";

interface Props {
  path: string;
  /** What is deleted. */
  name: string;
  question: string;
  consequence: string;
  disabled?: boolean;
  onDeleted: () => void;
}

export function DeleteButton({ path, name, question, consequence, disabled = false, onDeleted }: Props) {
  const asked = useSignal(false);
  const { busy, problem, run } = useSaving();

  async function destroy() {
    if (!(await run(() => write("DELETE", path)))) return;
    asked.value = false;
    notify(t.actions.deleted(name));
    onDeleted();
  }

  return (
    <>
      <button
        type="button"
        disabled={disabled}
        aria-label={`${t.actions.delete}: ${name}`}
        onClick={() => {
          asked.value = true;
        }}
      >
        {t.actions.delete}
      </button>
      {asked.value && (
        <ConfirmDialog
          title={question}
          text={consequence}
          action={t.actions.delete}
          busy={busy.value}
          problem={problem.value}
          onConfirm={() => void destroy()}
          onClose={() => {
            asked.value = false;
          }}
        />
      )}
    </>
  );
}
