/** A tool call of an agent: its name and duration; its arguments and result on demand. */

import { t } from "../../../texts";
import { RedactedText } from "./redacted_text";

interface Props {
  name: string;
  durationMs: number;
  ok: boolean;
  arguments: unknown;
  /** What the language model got: the result, or why there is none. */
  result: string | null;
}

export function ToolCall({ name, durationMs, ok, arguments: given, result }: Props) {
  const { transcript } = t.call;
  return (
    <details>
      <summary>
        {name} <span class="quiet">{transcript.took(durationMs)}</span>{" "}
        {!ok && <span class="badge badge-bad">{transcript.failed}</span>}
      </summary>
      <p class="quiet">{transcript.arguments}</p>
      <pre>
        <RedactedText text={JSON.stringify(given, null, 2)} />
      </pre>
      <p class="quiet">{ok ? transcript.result : transcript.error}</p>
      <pre>
        <RedactedText text={result ?? ""} />
      </pre>
    </details>
  );
}
