/** The context variables of a test, a line each, as in name = value. */

import { type Signal, useSignal } from "@preact/signals";

import { TextAreaField } from "../../components/fields";
import { t } from "../../texts";

export interface ContextVariables {
  text: Signal<string>;
  /** What is wrong with a line; "" if nothing is. */
  problem: Signal<string>;
  /** Returns the values; null if a line is none, which `problem` tells. */
  parse: () => Record<string, string> | null;
}

export function useContextVariables(): ContextVariables {
  const text = useSignal("");
  const problem = useSignal("");
  function parse() {
    const parsed = parseLines(text.value);
    const bad = typeof parsed === "string";
    problem.value = bad ? t.testCall.badVariable(parsed) : "";
    return bad ? null : parsed;
  }
  return { text, problem, parse };
}

/** `refused`: what the server says is wrong. */
export function ContextVariablesField({
  variables,
  refused,
}: {
  variables: ContextVariables;
  refused: string | undefined;
}) {
  return (
    <TextAreaField
      label={t.testCall.variables}
      help={t.testCall.variablesHelp}
      problem={variables.problem.value || refused}
      value={variables.text.value}
      onInput={(value) => {
        variables.text.value = value;
      }}
      rows={3}
      code
    />
  );
}

/** Returns the variables, or the line that is none. */
function parseLines(text: string): Record<string, string> | string {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const pairs = lines.map((line) => /^\s*(\w+)\s*=\s*(.*?)\s*$/.exec(line));
  const bad = pairs.indexOf(null);
  if (bad !== -1) return lines[bad] ?? "";
  return Object.fromEntries(pairs.map((pair) => [pair?.[1] ?? "", pair?.[2] ?? ""]));
}
