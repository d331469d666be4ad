/** The status of a call as a coloured word. */

import type { Schemas } from "../api/client";
import { t } from "../texts";

type Status = Schemas["CallListItem"]["status"];

const TONES: Record<Status, "live" | "good" | "bad" | "idle"> = {
  queued: "idle",
  ringing: "live",
  in_progress: "live",
  completed: "good",
  failed: "bad",
  no_answer: "idle",
};

export function StatusBadge({ status }: { status: Status }) {
  return <span class={`badge badge-${TONES[status]}`}>{t.calls.status[status]}</span>;
}
