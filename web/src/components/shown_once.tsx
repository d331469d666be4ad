/** A secret that the server tells once, with a button that copies it. */

import { useEffect, useRef } from "preact/hooks";

import { t } from "../texts";
import { CopyButton } from "./copy_button";

interface Props {
  /** Whose secret it is. */
  title: string;
  /** What to do with it. */
  explanation: string;
  secret: string;
  /** The words on the button that copies it. */
  copy: string;
  onDone: () => void;
}

export function ShownOnce({ title, explanation, secret, copy, onDone }: Props) {
  const panel = useRef<HTMLElement>(null);
  const text = useRef<HTMLPreElement>(null);
  useEffect(() => panel.current?.focus(), []);
  return (
    <section ref={panel} class="panel" aria-label={title} tabIndex={-1}>
      <h2>{title}</h2>
      <p>{explanation}</p>
      <pre ref={text}>{secret}</pre>
      <div class="actions">
        <CopyButton text={secret} name={copy} source={text} />
        <button type="button" onClick={onDone}>
          {t.settings.stored}
        </button>
      </div>
    </section>
  );
}
