/** Whether times are shown as "3 minutes ago" or as date and hour. The choice is kept in this browser. */

import { signal } from "@preact/signals";

const KEY = "absolute-times";

export const absoluteTimes = signal(localStorage.getItem(KEY) !== null);

export function showAbsoluteTimes(on: boolean): void {
  absoluteTimes.value = on;
  if (on) localStorage.setItem(KEY, "");
  else localStorage.removeItem(KEY);
}
