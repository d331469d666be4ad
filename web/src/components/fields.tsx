/** Labelled fields of a form: each with its help and with what the server says is wrong with it. */

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface Common {
  label: string;
  /** The field's meaning, bounds and default in words. */
  help?: ComponentChildren;
  problem?: string | undefined;
  disabled?: boolean;
  required?: boolean;
  /** The field's name in the request. */
  name?: string;
}

interface Attributes {
  id: string;
  name: string | undefined;
  disabled: boolean;
  required: boolean;
  "aria-invalid": "true" | "false";
  "aria-describedby": string;
}

/** The label, help and problem around any control, which takes the attributes. */
export function Field(props: Common & { children: (attributes: Attributes) => ComponentChildren }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children({
        id,
        name: props.name,
        disabled: props.disabled ?? false,
        required: props.required ?? false,
        "aria-invalid": props.problem ? "true" : "false",
        "aria-describedby": `${id}-help ${id}-problem`,
      })}
      <p id={`${id}-help`} class="help">
        {props.help}
      </p>
      <p id={`${id}-problem`} class="problem">
        {props.problem}
      </p>
    </div>
  );
}

interface TextProps extends Common {
  value: string;
  onInput: (value: string) => void;
  type?: "text" | "password" | "email" | "url" | "tel" | "search" | "datetime-local";
  autocomplete?: string;
  minLength?: number;
  maxLength?: number;
  placeholder?: string;
  /** Has the focus when its dialog opens. */
  autofocus?: boolean;
}

export function TextField({ value, onInput, type = "text", autocomplete = "off", ...props }: TextProps) {
  const { minLength, maxLength, placeholder, autofocus } = props;
  const limits = Object.fromEntries(
    Object.entries({ minLength, maxLength, placeholder, autofocus }).filter(([, each]) => each !== undefined),
  );
  return (
    <Field {...props}>
      {(attributes) => (
        <input
          {...attributes}
          {...limits}
          type={type as "text"} // the types differ only in the ARIA roles that Preact permits
          autocomplete={autocomplete}
          value={value}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

interface TextAreaProps extends Common {
  value: string;
  onInput: (value: string) => void;
  rows?: number;
  maxLength?: number;
  /** Code, such as JSON: a font of fixed width, no spelling check. */
  code?: boolean;
}

export function TextAreaField({ value, onInput, rows = 4, code = false, maxLength, ...props }: TextAreaProps) {
  return (
    <Field {...props}>
      {(attributes) => (
        <textarea
          {...attributes}
          {...(maxLength === undefined ? {} : { maxLength })}
          class={code ? "code" : ""}
          rows={rows}
          spellcheck={!code}
          value={value}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

interface NumberProps extends Common {
  /** `null`: the field is empty. */
  value: number | null;
  onInput: (value: number | null) => void;
  min?: number;
  max?: number;
  step?: number | "any";
}

export function NumberField({ value, onInput, min, max, step = 1, ...props }: NumberProps) {
  const bounds = { ...(min === undefined ? {} : { min }), ...(max === undefined ? {} : { max }) };
  return (
    <Field {...props}>
      {(attributes) => (
        <input
          {...attributes}
          {...bounds}
          type="number"
          step={step}
          value={value ?? ""}
          onInput={(event) => {
            const typed = event.currentTarget.valueAsNumber;
            onInput(Number.isNaN(typed) ? null : typed);
          }}
        />
      )}
    </Field>
  );
}

interface SelectProps extends Common {
  value: string;
  onInput: (value: string) => void;
  /** Value and text of each choice. */
  options: readonly (readonly [string, string])[];
}

export function SelectField({ value, onInput, options, ...props }: SelectProps) {
  return (
    <Field {...props}>
      {(attributes) => (
        <select {...attributes} value={value} onChange={(event) => onInput(event.currentTarget.value)}>
          {options.map(([each, text]) => (
            <option key={each} value={each}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

interface CheckboxProps extends Common {
  value: boolean;
  onInput: (value: boolean) => void;
}

export function CheckboxField({ label, help, problem, name, disabled = false, value, onInput }: CheckboxProps) {
  const id = useId();
  return (
    <div class="field">
      <label class="field-inline">
        <input
          type="checkbox"
          name={name}
          checked={value}
          disabled={disabled}
          aria-describedby={`${id}-help ${id}-problem`}
          onChange={(event) => onInput(event.currentTarget.checked)}
        />
        {label}
      </label>
      <p id={`${id}-help`} class="help">
        {help}
      </p>
      <p id={`${id}-problem`} class="problem">
        {problem}
      </p>
    </div>
  );
}
