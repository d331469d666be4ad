/** How long the organization's calls are kept, and what is redacted in them. */

import { useSignal } from "@preact/signals";

import { write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { changes, useDraft } from "../../app/draft";
import { useUnsavedChanges } from "../../app/leave_guard";
import { hasRole } from "../../app/session";
import { ConfirmDialog } from "../../components/dialog";
import { CheckboxField, NumberField } from "../../components/fields";
import { notify } from "../../components/notices";
import { t } from "../../texts";
import type { Organization } from "./organization";

const DAYS = ["keepRecordingsDays", "keepTranscriptsDays", "keepCallsDays"] as const;
const REDACTIONS = ["redact", "redactDialled"] as const;
const texts = t.settings.organization;

type Values = Pick<Organization, (typeof DAYS)[number] | (typeof REDACTIONS)[number]>;

export function RetentionForm({ organization, onSaved }: { organization: Organization; onSaved: () => void }) {
  const stored = valuesOf(organization);
  const draft = useDraft(stored);
  const { busy, problem, fields, run } = useSaving();
  const asked = useSignal(false);
  const disabled = !hasRole("owner");
  useUnsavedChanges(draft.dirty);

  async function save() {
    asked.value = false;
    const changed = changes(stored, draft.values.value);
    if (!(await run(() => write("PATCH", "/v1/organization", changed)))) return;
    notify(t.actions.saved);
    onSaved();
  }

  function submit(event: Event) {
    event.preventDefault();
    if (isShorter(stored, draft.values.value)) asked.value = true;
    else void save();
  }

  return (
    <form class="panel next" onSubmit={submit}>
      <h2>{texts.retention}</h2>
      {disabled && <p class="quiet">{texts.ownersOnly}</p>}
      {DAYS.map((name) => (
        <NumberField
          key={name}
          label={texts[name]}
          help={texts[`${name}Help`]}
          problem={fields.value[name]}
          disabled={disabled}
          value={draft.values.value[name]}
          onInput={(value) => draft.set(name, value)}
        />
      ))}
      {REDACTIONS.map((name) => (
        <CheckboxField
          key={name}
          label={texts[name]}
          help={texts[`${name}Help`]}
          problem={fields.value[name]}
          disabled={disabled}
          value={draft.values.value[name]}
          onInput={(value) => draft.set(name, value)}
        />
      ))}
      <p class="problem" role="alert">
        {problem}
      </p>
      {!disabled && (
        <div class="actions">
          <button type="submit" class="primary" disabled={busy.value || !draft.dirty}>
            {t.actions.save}
          </button>
        </div>
      )}
      {asked.value && (
        <ConfirmDialog
          title={texts.confirm}
          text={texts.confirmText}
          action={texts.confirmAction}
          onConfirm={() => void save()}
          onClose={() => {
            asked.value = false;
          }}
        />
      )}
    </form>
  );
}

function valuesOf(organization: Organization): Values {
  const { keepRecordingsDays, keepTranscriptsDays, keepCallsDays, redact, redactDialled } = organization;
  return { keepRecordingsDays, keepTranscriptsDays, keepCallsDays, redact, redactDialled };
}

function isShorter(stored: Values, wanted: Values): boolean {
  return DAYS.some((name) => (wanted[name] ?? Number.POSITIVE_INFINITY) < (stored[name] ?? Number.POSITIVE_INFINITY));
}
