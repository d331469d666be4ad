/** Modal dialogs, by the browser's own element, which keeps the focus inside and closes at Escape. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

import { t } from "../texts";

interface Props {
  title: string;
  /** Without it, the user cannot close the dialog. */
  onClose?: () => void;
  class?: string;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, children, ...props }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  /** Browsers close at the second Escape in any case. */
  const stay = () => {
    if (element.current?.isConnected) element.current.showModal();
  };
  return (
    <dialog
      ref={element}
      class={props.class}
      aria-labelledby={id}
      onCancel={(event) => onClose ?? event.preventDefault()}
      onClose={onClose ?? stay}
    >
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

interface ConfirmProps {
  /** The question, which names what is destroyed. */
  title: string;
  /** What follows from it. */
  text: string;
  /** The verb on the button, such as "Delete". */
  action: string;
  busy?: boolean;
  problem?: string;
  onConfirm: () => void;
  onClose: () => void;
  /** What can be chosen before it is done. */
  children?: ComponentChildren;
}

export function ConfirmDialog(props: ConfirmProps) {
  const { title, text, action, busy = false, problem, onConfirm, onClose, children } = props;
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{text}</p>
      {children}
      <p class="problem" role="alert">
        {problem}
      </p>
      <div class="actions">
        <button type="button" onClick={onClose}>
          {t.actions.cancel}
        </button>
        <button type="button" class="danger" disabled={busy} onClick={onConfirm}>
          {action}
        </button>
      </div>
    </Dialog>
  );
}
