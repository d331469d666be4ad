/** A text with variables: the field, what its variables mean, and the text with values in their place. */

import { useSignal } from "@preact/signals";

import { TextField } from "../../../components/fields";
import { t } from "../../../texts";
import type { Draft, TextName } from "./draft";
import { DraftTextArea } from "./draft_fields";
import { meaningOf, substitute, variablesOf } from "./variables";

interface Props {
  draft: Draft;
  name: TextName;
  maxLength: number;
  rows?: number;
}

export function VariableText({ draft, name, maxLength, rows = 3 }: Props) {
  const open = useSignal(false);
  const text = draft.values.value[name] ?? "";
  const { names, invalid } = variablesOf(text);
  const { variables, characters } = t.agents;
  return (
    <div class="variable-text">
      <DraftTextArea draft={draft} name={name} maxLength={maxLength} rows={rows} />
      <div class="variable-notes">
        <span class="quiet figure">{characters([...text].length, maxLength)}</span>
        {invalid !== null && <p class="problem">{variables.invalid(invalid)}</p>}
        {names.length > 0 && (
          <details
            open={open.value}
            onToggle={(event) => {
              open.value = event.currentTarget.open;
            }}
          >
            <summary>
              {variables.title} ({names.length})
            </summary>
            <VariableList names={names} />
            {open.value && <Preview draft={draft} names={names} text={text} />}
          </details>
        )}
      </div>
    </div>
  );
}

function VariableList({ names }: { names: readonly string[] }) {
  const { variables } = t.agents;
  return (
    <ul class="variable-list">
      {names.map((name) => {
        const meaning = meaningOf(name);
        return (
          <li key={name}>
            <code>{`{{${name}}}`}</code> {meaning ?? variables.unknown}
            {meaning === null && <span class="badge badge-live">{variables.unknownBadge}</span>}
          </li>
        );
      })}
    </ul>
  );
}

function Preview({ draft, names, text }: { draft: Draft; names: readonly string[]; text: string }) {
  const { variables } = t.agents;
  const samples = draft.samples.value;
  return (
    <fieldset>
      <legend>{variables.preview}</legend>
      <div class="field-grid">
        {names.map((name) => (
          <TextField
            key={name}
            label={variables.value(name)}
            value={samples[name] ?? ""}
            onInput={(value) => {
              draft.samples.value = { ...draft.samples.value, [name]: value };
            }}
          />
        ))}
      </div>
      <p class="quiet">{variables.result}</p>
      <pre>{substitute(text, samples)}</pre>
    </fieldset>
  );
}
