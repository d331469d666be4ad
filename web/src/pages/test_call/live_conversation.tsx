/** What both sides say, and the tools that the agent uses, as it happens. */

import { useEffect, useRef } from "preact/hooks";

import { t } from "../../texts";
import type { Line, TestCall } from "./test_call";

export function LiveConversation({ call }: { call: TestCall }) {
  const box = useRef<HTMLDivElement>(null);
  const lines = call.lines.value;
  useEffect(() => {
    box.current?.scrollTo({ top: box.current.scrollHeight });
  }, [lines]);
  return (
    <>
      <h3>{t.testCall.conversation}</h3>
      {lines.length === 0 && <p class="quiet">{t.testCall.silence}</p>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: keys scroll it */}
      <div ref={box} class="live-conversation" role="log" aria-label={t.testCall.conversation} tabIndex={0}>
        <ol>
          {lines.map((line, index) => (
            <LineView key={index} line={line} />
          ))}
        </ol>
      </div>
    </>
  );
}

function LineView({ line }: { line: Line }) {
  if (line.kind === "words") {
    const { role, content, final } = line.words;
    return (
      <li>
        <span class={`speaker speaker-${role}`}>{t.testCall.roles[role]}</span>
        <span class={final ? "" : "not-final"}>{content}</span>
      </li>
    );
  }
  const { name, ok, result, startMs, endMs } = line.use;
  return (
    <li>
      <code>{name}</code> {endMs === null ? t.testCall.tool.runs : `${endMs - startMs} ms`}{" "}
      {ok === false && <span class="badge badge-bad">{t.testCall.tool.failed}</span>}
      {line.use.arguments !== null && <pre>{JSON.stringify(line.use.arguments)}</pre>}
      {result !== null && <pre>{result}</pre>}
    </li>
  );
}
