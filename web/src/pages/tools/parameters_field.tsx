/** The parameters of a tool: a form for each, or all of them as JSON. The value is the JSON text in either view. */

import { useSignal } from "@preact/signals";
import { useId } from "preact/hooks";

import type { Schemas } from "../../api/client";
import { CheckboxField, SelectField, TextAreaField, TextField } from "../../components/fields";
import { t } from "../../texts";

type Parameter = Schemas["ToolParameterView"];

/** The server's bound. */
const MOST = 64;
const EMPTY: Parameter = { name: "", type: "string", description: "", required: false };
const FIELDS: readonly string[] = Object.keys(EMPTY);

interface Props {
  value: string;
  onInput: (value: string) => void;
  /** What is wrong with the list as a whole. */
  problem: string | undefined;
  /** What is wrong with each field, by its path in the request. */
  problems: Readonly<Record<string, string>>;
  disabled: boolean;
}

export function ParametersField({ value, onInput, problem, problems, disabled }: Props) {
  const asJson = useSignal(false);
  const id = useId();
  const texts = t.tools.parameterForm;
  const items = parametersOf(value);
  const shownAsJson = asJson.value || items === null;
  return (
    <section class="field" aria-labelledby={id}>
      <div class="title-bar">
        <h2 id={id}>{t.tools.parameters}</h2>
        <button
          type="button"
          disabled={items === null}
          onClick={() => {
            asJson.value = !asJson.value;
          }}
        >
          {shownAsJson ? texts.asForm : texts.asJson}
        </button>
      </div>
      {shownAsJson ? (
        <TextAreaField
          label={texts.json}
          help={t.tools.parametersHelp}
          problem={problem}
          {...{ disabled, code: true, rows: 8, value, onInput }}
        />
      ) : (
        <ParameterForm
          items={items}
          disabled={disabled}
          problems={problems}
          onChange={(changed) => onInput(JSON.stringify(changed, null, 2))}
        />
      )}
    </section>
  );
}

interface FormProps {
  items: readonly Parameter[];
  onChange: (items: Parameter[]) => void;
  problems: Readonly<Record<string, string>>;
  disabled: boolean;
}

function ParameterForm({ items, onChange, problems, disabled }: FormProps) {
  const texts = t.tools.parameterForm;
  return (
    <>
      <p class="help">{texts.help}</p>
      {items.map((item, index) => {
        const change = (changes: Partial<Parameter>) =>
          onChange(items.map((each, at) => (at === index ? { ...each, ...changes } : each)));
        const problemOf = (field: string) => problems[`config.body.${index}.${field}`];
        return (
          <fieldset key={index} class="row-fields" disabled={disabled}>
            <legend>{texts.item(index + 1)}</legend>
            <div class="field-grid">
              <TextField
                label={texts.name}
                help={texts.nameHelp}
                problem={problemOf("name")}
                maxLength={255}
                value={item.name}
                onInput={(name) => change({ name })}
              />
              <SelectField
                label={texts.type}
                problem={problemOf("type")}
                options={Object.entries(texts.types)}
                value={item.type}
                onInput={(type) => change({ type: type as Parameter["type"] })}
              />
            </div>
            <TextAreaField
              label={texts.description}
              help={texts.descriptionHelp}
              problem={problemOf("description")}
              maxLength={2000}
              rows={2}
              value={item.description}
              onInput={(description) => change({ description })}
            />
            <CheckboxField
              label={texts.required}
              help={texts.requiredHelp}
              disabled={disabled}
              value={item.required}
              onInput={(required) => change({ required })}
            />
            {!disabled && (
              <button type="button" onClick={() => onChange(items.filter((_, at) => at !== index))}>
                {texts.remove(item.name)}
              </button>
            )}
          </fieldset>
        );
      })}
      {!disabled && (
        <button type="button" disabled={items.length >= MOST} onClick={() => onChange([...items, EMPTY])}>
          {texts.add}
        </button>
      )}
    </>
  );
}

/** The parameters of a JSON text; null if a form cannot show all that it says. */
function parametersOf(text: string): Parameter[] | null {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    return null;
  }
  return Array.isArray(found) && found.every(isParameter) ? found.map((each) => ({ ...EMPTY, ...each })) : null;
}

function isParameter(value: unknown): value is Partial<Parameter> {
  if (typeof value !== "object" || value === null) return false;
  return Object.entries(value).every(
    ([name, each]) => FIELDS.includes(name) && typeof each === typeof EMPTY[name as keyof Parameter],
  );
}
