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
  /** The verb on the buttons, if it is not "Delete". */
  action?: string;
  /** What the notice says afterwards, if not that it is deleted. */
  done?: string;
  onDeleted: () => void;
}

export function DeleteButton({ path, name, question, consequence, onDeleted, ...props }: Props) {
  const { disabled = false, action = t.actions.delete, done = t.actions.deleted(name) } = props;
  const asked = useSignal(false);
  const { busy, problem, run } = useSaving();

  async function destroy() {
    if (!(await run(() => write("DELETE", path)))) return;
    asked.value = false;
    notify(done);
    onDeleted();
  }

  return (
    <>
      <button
        type="button"
        disabled={disabled}
        aria-label={`${action}: ${name}`}
        onClick={() => {
          asked.value = true;
        }}
      >
        {action}
      </button>
      {asked.value && (
        <ConfirmDialog
          title={question}
          text={consequence}
          action={action}
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
