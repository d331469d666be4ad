/** A text of a call, in which what was redacted stands out. */

import { t } from "../../texts";

/** What the server writes in place of a number or a credential. */
const REDACTED = /(\[(?:card|number|hidden)\])/;

export function RedactedText({ text }: { text: string }) {
  return (
    <>
      {text.split(REDACTED).map((part, index) =>
        REDACTED.test(part) ? (
          <mark key={index} class="redacted" title={t.call.redacted}>
            {part}
          </mark>
        ) : (
          part
        ),
      )}
    </>
  );
}
