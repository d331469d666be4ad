/** The webhook's secret, which the server never tells: it is kept, replaced or removed. */

import { TextField } from "../../../components/fields";
import { t } from "../../../texts";
import type { Draft, SecretChange } from "./draft";

export function WebhookSecret({ draft }: { draft: Draft }) {
  const texts = t.agents.fields.postCallWebhookSecret;
  const { postCallWebhookSecretSet: isSet } = draft.stored.value;
  const change = draft.secret.value;
  const choices: [SecretChange, string][] = [
    [{ action: "keep" }, texts.keep],
    [{ action: "replace", value: "" }, texts.replace],
  ];
  if (isSet) choices.push([{ action: "remove" }, texts.remove]);
  return (
    <fieldset class="field" disabled={draft.readOnly}>
      <legend>{texts.label}</legend>
      <p>{state(change, isSet)}</p>
      {!draft.readOnly &&
        choices.map(([each, text]) => (
          <label key={each.action} class="field-inline">
            <input
              type="radio"
              name="postCallWebhookSecret"
              checked={change.action === each.action}
              onChange={() => {
                draft.secret.value = each;
              }}
            />
            {text}
          </label>
        ))}
      {change.action === "replace" && (
        <TextField
          label={texts.value}
          type="password"
          autocomplete="new-password"
          maxLength={1024}
          required
          problem={draft.problem("postCallWebhookSecret")}
          value={change.value}
          onInput={(value) => {
            draft.secret.value = { action: "replace", value };
          }}
        />
      )}
      <p class="help">{texts.help}</p>
    </fieldset>
  );
}

function state(change: SecretChange, isSet: boolean): string {
  const texts = t.agents.fields.postCallWebhookSecret;
  if (change.action === "replace") return texts.willSet;
  if (change.action === "remove") return texts.willRemove;
  return isSet ? texts.set : texts.unset;
}
