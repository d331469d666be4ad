/** Fields of a form that show and change a field of a draft, under the API's name of it. */

import { CheckboxField, NumberField, SelectField, TextAreaField, TextField } from "../../../components/fields";
import { t } from "../../../texts";
import type { Draft, FlagName, NumberName, TextName, Values } from "./draft";

interface Props<Name extends keyof Values> {
  draft: Draft;
  name: Name;
  disabled?: boolean;
}

function common<Name extends keyof Values>({ draft, name, disabled = false }: Props<Name>) {
  const { label, help } = t.agents.fields[name];
  return { name, label, help, problem: draft.problem(name), disabled: disabled || draft.readOnly };
}

export function DraftText(props: Props<TextName> & { maxLength: number; type?: "text" | "url"; required?: boolean }) {
  const { draft, name, maxLength, type = "text", required = false } = props;
  return (
    <TextField
      {...common(props)}
      type={type}
      required={required}
      maxLength={maxLength}
      value={draft.values.value[name] ?? ""}
      onInput={(value) => draft.set(name, value as never)}
    />
  );
}

export function DraftTextArea(props: Props<TextName> & { maxLength: number; rows?: number }) {
  const { draft, name, maxLength, rows = 3 } = props;
  return (
    <TextAreaField
      {...common(props)}
      maxLength={maxLength}
      rows={rows}
      value={draft.values.value[name] ?? ""}
      onInput={(value) => draft.set(name, value as never)}
    />
  );
}

export function DraftNumber(props: Props<NumberName> & { min: number; max: number; step?: number | "any" }) {
  const { draft, name, min, max, step = 1 } = props;
  return (
    <NumberField
      {...common(props)}
      min={min}
      max={max}
      step={step}
      value={draft.values.value[name]}
      onInput={(value) => draft.set(name, value as never)}
    />
  );
}

export function DraftFlag(props: Props<FlagName>) {
  const { draft, name } = props;
  return (
    <CheckboxField {...common(props)} value={draft.values.value[name]} onInput={(value) => draft.set(name, value)} />
  );
}

/** A choice among texts; "" stands for null. */
export function DraftSelect(props: Props<TextName> & { options: readonly (readonly [string, string])[] }) {
  const { draft, name, options } = props;
  const value = draft.values.value[name] ?? "";
  const all = options.some(([each]) => each === value) ? options : [...options, [value, t.agents.unknownId(value)]];
  return (
    <SelectField
      {...common(props)}
      options={all as readonly (readonly [string, string])[]}
      value={value}
      onInput={(chosen) => draft.set(name, (chosen === "" ? null : chosen) as never)}
    />
  );
}
