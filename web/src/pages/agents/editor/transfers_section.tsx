/** Where the agent may transfer calls to, and what the caller hears meanwhile. */

import { SelectField, TextAreaField, TextField } from "../../../components/fields";
import { t } from "../../../texts";
import type { Choices } from "../choices";
import type { Draft, Values } from "./draft";
import { DraftFlag, DraftText, DraftTextArea } from "./draft_fields";
import { Rows } from "./rows";

type Target = Values["transferTargets"][number];

const EMPTY: Target = { name: "", description: "", number: "", mode: "cold", phoneNumberId: null };

export function TransfersSection({ draft, choices }: { draft: Draft; choices: Choices }) {
  return (
    <>
      <Targets draft={draft} numbers={choices.numbers} />
      <DraftTextArea draft={draft} name="holdMessage" maxLength={500} rows={2} />
      <DraftText draft={draft} name="holdMusicUrl" maxLength={500} type="url" />
      <DraftFlag draft={draft} name="recordAfterTransfer" />
      <DraftFlag draft={draft} name="stayOnCall" />
    </>
  );
}

function Targets({ draft, numbers }: { draft: Draft; numbers: Choices["numbers"] }) {
  const texts = t.agents.fields.transferTargets;
  const trunks = numbers.map(({ id, name, number }) => [id, name ? `${name} (${number})` : number] as const);
  return (
    <Rows
      draft={draft}
      name="transferTargets"
      texts={texts}
      items={draft.values.value.transferTargets}
      most={64}
      empty={EMPTY}
      onChange={(items) => draft.set("transferTargets", items)}
    >
      {(target, path, change) => (
        <>
          <div class="field-grid">
            <TextField
              label={texts.name}
              help={texts.nameHelp}
              problem={draft.problem(`${path}.name`)}
              maxLength={255}
              value={target.name}
              onInput={(name) => change({ name })}
            />
            <TextField
              label={texts.number}
              help={texts.numberHelp}
              problem={draft.problem(`${path}.number`)}
              type="tel"
              value={target.number}
              onInput={(number) => change({ number })}
            />
            <SelectField
              label={texts.mode}
              problem={draft.problem(`${path}.mode`)}
              options={Object.entries(texts.modes)}
              value={target.mode}
              onInput={(mode) => change({ mode: mode as Target["mode"] })}
            />
            <SelectField
              label={texts.phoneNumberId}
              help={texts.phoneNumberIdHelp}
              problem={draft.problem(`${path}.phoneNumberId`)}
              options={[["", texts.sameTrunk], ...trunks]}
              value={target.phoneNumberId ?? ""}
              onInput={(id) => change({ phoneNumberId: id || null })}
            />
          </div>
          <TextAreaField
            label={texts.description}
            help={texts.descriptionHelp}
            problem={draft.problem(`${path}.description`)}
            maxLength={2000}
            rows={2}
            value={target.description}
            onInput={(description) => change({ description })}
          />
        </>
      )}
    </Rows>
  );
}
