/** What is made of a call when it has ended, and who gets it. */

import { SelectField, TextAreaField, TextField } from "../../../components/fields";
import { t } from "../../../texts";
import type { Draft, Values } from "./draft";
import { DraftFlag, DraftText } from "./draft_fields";
import { Rows } from "./rows";
import { WebhookSecret } from "./webhook_secret";

type Extraction = Values["postCallExtractionSchema"][number];

const EMPTY: Extraction = { name: "", description: "", type: "string" };
const EXAMPLES = { string: "…", number: 0, boolean: true } as const;

export function AfterCallSection({ draft }: { draft: Draft }) {
  return (
    <>
      <DraftFlag draft={draft} name="postCallSummaryEnabled" />
      <Extractions draft={draft} />
      <DraftText draft={draft} name="postCallWebhookUrl" maxLength={4096} type="url" />
      <WebhookSecret draft={draft} />
      <Events draft={draft} />
    </>
  );
}

function Extractions({ draft }: { draft: Draft }) {
  const texts = t.agents.fields.postCallExtractionSchema;
  const items = draft.values.value.postCallExtractionSchema;
  return (
    <>
      <Rows
        draft={draft}
        name="postCallExtractionSchema"
        texts={texts}
        items={items}
        most={100}
        empty={EMPTY}
        onChange={(changed) => draft.set("postCallExtractionSchema", changed)}
      >
        {(item, path, change) => (
          <>
            <div class="field-grid">
              <TextField
                label={texts.name}
                help={texts.nameHelp}
                problem={draft.problem(`${path}.name`)}
                maxLength={255}
                value={item.name}
                onInput={(name) => change({ name })}
              />
              <SelectField
                label={texts.type}
                problem={draft.problem(`${path}.type`)}
                options={Object.entries(texts.types)}
                value={item.type}
                onInput={(type) => change({ type: type as Extraction["type"] })}
              />
            </div>
            <TextAreaField
              label={texts.description}
              help={texts.descriptionHelp}
              problem={draft.problem(`${path}.description`)}
              maxLength={2000}
              rows={2}
              value={item.description}
              onInput={(description) => change({ description })}
            />
          </>
        )}
      </Rows>
      {items.length > 0 && (
        <div class="field">
          <p class="help">{texts.result}</p>
          <pre>
            {JSON.stringify(
              { extractedData: Object.fromEntries(items.map(({ name, type }) => [name, EXAMPLES[type]])) },
              null,
              2,
            )}
          </pre>
        </div>
      )}
    </>
  );
}

function Events({ draft }: { draft: Draft }) {
  const texts = t.agents.fields.postCallWebhookEvents;
  const chosen = draft.values.value.postCallWebhookEvents;
  const names = Object.keys(texts.events) as (keyof typeof texts.events)[];
  return (
    <fieldset class="field" disabled={draft.readOnly}>
      <legend>{texts.label}</legend>
      <div class="checks">
        {names.map((name) => (
          <label key={name} class="field-inline">
            <input
              type="checkbox"
              name="postCallWebhookEvents"
              checked={chosen.includes(name)}
              onChange={(event) =>
                draft.set(
                  "postCallWebhookEvents",
                  names.filter((each) => (each === name ? event.currentTarget.checked : chosen.includes(each))),
                )
              }
            />
            <span>
              {texts.events[name]} <code class="quiet">{name}</code>
            </span>
          </label>
        ))}
      </div>
      <p class="help">{texts.help}</p>
      <p class="problem">{draft.problemBelow("postCallWebhookEvents")}</p>
    </fieldset>
  );
}
