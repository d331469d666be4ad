/** When the agent listens, answers and stops. */

import type { Draft } from "./draft";
import { DraftNumber } from "./draft_fields";

export function ListeningSection({ draft }: { draft: Draft }) {
  return (
    <div class="field-grid">
      <DraftNumber draft={draft} name="turnEndpointDelay" min={50} max={2000} />
      <DraftNumber draft={draft} name="ultravadEotThreshold" min={0} max={1} step="any" />
      <DraftNumber draft={draft} name="fallbackSilenceMs" min={0} max={10_000} />
      <DraftNumber draft={draft} name="speculativeSilenceMs" min={0} max={5000} />
      <DraftNumber draft={draft} name="minTurnDuration" min={0} max={2000} />
      <DraftNumber draft={draft} name="minInterruptionDuration" min={0} max={2000} />
      <DraftNumber draft={draft} name="frameActivationThreshold" min={0} max={1} step="any" />
      <DraftNumber draft={draft} name="postSpeechCooldown" min={0} max={5000} />
    </div>
  );
}
