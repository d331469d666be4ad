/** Copies a text to the clipboard. Without the clipboard (a page of plain HTTP has none) it selects the text. */

import { t } from "../texts";
import { notify } from "./notices";

interface Props {
  text: string | (() => string);
  /** What is copied, if "Copy" does not say it. */
  name?: string;
  /** Where the text stands on the page. */
  source?: { current: HTMLElement | null };
}

export function CopyButton({ text, name, source }: Props) {
  async function copy() {
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : text());
      notify(t.actions.copied);
    } catch {
      if (source?.current) getSelection()?.selectAllChildren(source.current);
      notify(t.actions.copyByHand);
    }
  }
  return (
    <button type="button" onClick={() => void copy()}>
      {name ?? t.actions.copy}
    </button>
  );
}
