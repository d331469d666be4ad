/** How calls end, and what is recorded of them. */

import { t } from "../../../texts";
import type { Draft } from "./draft";
import { DraftFlag, DraftNumber, DraftSelect } from "./draft_fields";
import { VariableText } from "./variable_text";

export function LimitsSection({ draft }: { draft: Draft }) {
  const { off, detect, leave_message } = t.agents.fields.voicemailDetection;
  return (
    <>
      <div class="field-grid">
        <DraftNumber draft={draft} name="maxCallDurationSeconds" min={30} max={3600} />
        <DraftNumber draft={draft} name="customerSilenceMs" min={0} max={60_000} />
      </div>
      <DraftFlag draft={draft} name="allowEndCall" />
      <DraftSelect
        draft={draft}
        name="voicemailDetection"
        options={[
          ["off", off],
          ["detect", detect],
          ["leave_message", leave_message],
        ]}
      />
      <VariableText draft={draft} name="voicemailMessage" maxLength={500} />
      <DraftFlag draft={draft} name="recordingEnabled" />
      <VariableText draft={draft} name="recordingAnnouncement" maxLength={500} />
    </>
  );
}
