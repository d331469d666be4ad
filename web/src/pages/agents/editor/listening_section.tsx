/** When the agent listens, answers and stops. */

import { TURN_SETTINGS } from "../../../components/turn_settings";
import type { Draft } from "./draft";
import { DraftNumber } from "./draft_fields";

export function ListeningSection({ draft }: { draft: Draft }) {
  return (
    <div class="field-grid">
      {TURN_SETTINGS.map((setting) => (
        <DraftNumber key={setting.name} draft={draft} {...setting} />
      ))}
    </div>
  );
}
