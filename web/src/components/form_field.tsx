/** A labelled field of a form, with what is wrong with it. */

import { useId } from "preact/hooks";

interface Props {
  label: string;
  name: string;
  type?: "text" | "password";
  autocomplete?: string;
  required?: boolean;
  minLength?: number;
  problem?: string;
}

export function FormField({ label, name, type = "text", autocomplete = "off", problem, ...limits }: Props) {
  const id = useId();
  const attributes = {
    id,
    name,
    autocomplete,
    required: limits.required ?? false,
    minLength: limits.minLength ?? 0,
    "aria-invalid": problem ? "true" : "false",
    "aria-describedby": `${id}-problem`,
  } as const;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {type === "password" ? <input {...attributes} type="password" /> : <input {...attributes} type="text" />}
      <p id={`${id}-problem`} class="problem">
        {problem}
      </p>
    </div>
  );
}
