/** Says whether what is shown is up to date. */

import { connection } from "../api/events";
import { t } from "../texts";

export function ConnectionState() {
  const state = connection.value;
  return (
    <span class={`badge badge-${state === "open" ? "good" : state === "lost" ? "bad" : "idle"}`} role="status">
      {t.live.connection[state]}
    </span>
  );
}
