/** A text of a call, in which what was redacted stands out. */

import { t } from "../../../texts";
import { redactedParts } from "./redaction";

export function RedactedText({ text }: { text: string }) {
  return (
    <>
      {redactedParts(text).map((part, index) =>
        index % 2 === 1 ? (
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
