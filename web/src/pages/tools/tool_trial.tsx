/** Sends the request of a tool with arguments, and shows what an agent would get. */

import { useSignal } from "@preact/signals";

import { type Schemas, write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { TextAreaField } from "../../components/fields";
import { t } from "../../texts";

type Trial = Schemas["ToolTrialView"];

export function ToolTrial({ id, dirty }: { id: string; dirty: boolean }) {
  const texts = t.tools.trial;
  const given = useSignal("{}");
  const variables = useSignal("{}");
  const wrong = useSignal<{ given?: string; variables?: string }>({});
  const trial = useSignal<Trial | null>(null);
  const { busy, problem, fields, run } = useSaving();

  async function send(event: Event) {
    event.preventDefault();
    const [first, second] = [objectOf(given.value), objectOf(variables.value)];
    wrong.value = {
      ...(first === null ? { given: texts.noObject } : {}),
      ...(second === null ? { variables: texts.noObject } : {}),
    };
    if (first === null || second === null) return;
    trial.value = null;
    await run(async () => {
      trial.value = await write<Trial>("POST", `/v1/tools/${id}/try`, { arguments: first, contextVariables: second });
    });
  }

  return (
    <section class="panel">
      <h2>{texts.title}</h2>
      <form onSubmit={(event) => void send(event)}>
        <div class="columns">
          <TextAreaField
            label={texts.arguments}
            help={texts.argumentsHelp}
            problem={wrong.value.given ?? fields.value.arguments}
            code
            value={given.value}
            onInput={(value) => {
              given.value = value;
            }}
          />
          <TextAreaField
            label={texts.variables}
            help={texts.variablesHelp}
            problem={wrong.value.variables ?? fields.value.contextVariables}
            code
            value={variables.value}
            onInput={(value) => {
              variables.value = value;
            }}
          />
        </div>
        <p class="help">{dirty ? texts.saveFirst : texts.help}</p>
        <p class="problem" role="alert">
          {problem}
        </p>
        <button type="submit" disabled={busy.value || dirty}>
          {texts.submit}
        </button>
      </form>
      <div aria-live="polite">{trial.value !== null && <Result trial={trial.value} />}</div>
    </section>
  );
}

function Result({ trial }: { trial: Trial }) {
  const texts = t.tools.trial;
  return (
    <>
      <p>
        <span class={`badge badge-${trial.ok ? "good" : "bad"}`}>{trial.ok ? texts.good : texts.bad}</span>{" "}
        {trial.statusCode === null ? texts.noStatus : texts.status(trial.statusCode)} ·{" "}
        <span class="figure">{texts.duration(trial.durationMs)}</span>
      </p>
      <h3>{texts.answer}</h3>
      <pre>{trial.content}</pre>
    </>
  );
}

function objectOf(text: string): object | null {
  try {
    const value: unknown = JSON.parse(text.trim() || "{}");
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
