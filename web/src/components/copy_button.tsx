/** Copies a text to the clipboard. Without the clipboard (a page of plain HTTP has none) it selects the text. */

import { t } from "../texts";
import { notify } from "./notices";

export function CopyButton({ text, source }: { text: string; source?: { current: HTMLElement | null } }) {
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      notify(t.actions.copied);
    } catch {
      if (source?.current) getSelection()?.selectAllChildren(source.current);
      notify(t.actions.copyByHand);
    }
  }
  return (
    <button type="button" onClick={() => void copy()}>
      {t.actions.copy}
    </button>
  );
}
