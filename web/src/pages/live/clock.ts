/** The time, once a second, for what counts on. */

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

export const now = signal(Date.now());

let users = 0;
let timer: ReturnType<typeof setInterval> | undefined;

/** Keep `now` going while a component is shown. */
export function useClock(): void {
  useEffect(() => {
    users += 1;
    now.value = Date.now();
    timer ??= setInterval(() => {
      now.value = Date.now();
    }, 1000);
    return () => {
      users -= 1;
      if (users > 0) return;
      clearInterval(timer);
      timer = undefined;
    };
  }, []);
}
