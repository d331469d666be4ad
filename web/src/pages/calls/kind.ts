/** What kind of call it is: of telephony, a test call of a browser, or a chat. */

import type { Schemas } from "../../api/client";
import { t } from "../../texts";

type Call = Pick<Schemas["CallListItem"], "provider" | "direction" | "customerNumber">;

export type Party = Pick<Call, "provider" | "customerNumber">;

/** The call has no sound: its words are written. */
export function isChat(call: Pick<Call, "provider">): boolean {
  return call.provider === "chat";
}

/** The other side, as people call it. */
export function partyOf(call: Party): string {
  if (call.provider === "web") return t.calls.browser;
  return isChat(call) ? t.calls.chat : call.customerNumber;
}

/** The other side of a call, within a sentence. */
export function namedParty(call: Party): string {
  return call.provider === "web" ? t.call.aBrowser : partyOf(call);
}

/** What the call is called above its facts. */
export function titleOf(call: Party): string {
  return call.provider === "web" || isChat(call) ? partyOf(call) : t.call.title(partyOf(call));
}

export function directionOf(call: Call): string {
  return isChat(call) ? t.calls.written : t.calls.direction[call.direction];
}
