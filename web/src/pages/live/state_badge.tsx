/** What happens in a call at this moment, as a coloured word. */

import type { Schemas } from "../../api/client";
import { t } from "../../texts";

type State = Schemas["CallListItem"]["state"];

const TONES: Record<State, "live" | "good" | "bad" | "idle"> = {
  queued: "idle",
  ringing: "live",
  listening: "idle",
  thinking: "live",
  speaking: "good",
  tool: "live",
  on_hold: "idle",
  transferring: "live",
  ended: "idle",
};

export function StateBadge({ state }: { state: State }) {
  return <span class={`badge badge-${TONES[state]}`}>{t.live.state[state]}</span>;
}
