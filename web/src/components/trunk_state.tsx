/** The state of a number's trunk as a coloured word. */

import type { Schemas } from "../api/client";
import { t } from "../texts";

type Number = Schemas["PhoneNumber"];

const TONES: Record<Number["sipStatus"], "live" | "good" | "bad" | "idle"> = {
  unregistered: "idle",
  registering: "live",
  registered: "good",
  failed: "bad",
  listening: "good",
};

export function TrunkState({ number }: { number: Number }) {
  return <span class={`badge badge-${TONES[number.sipStatus]}`}>{t.phoneNumbers.state[number.sipStatus]}</span>;
}
