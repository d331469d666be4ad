/** The time, about once a minute, for relative times. */

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

const STEP_MS = 60_000;

/** Grows by each step that has passed while somebody used it. */
const steps = signal(0);
let users = 0;
let timer: ReturnType<typeof setInterval> | undefined;

/** The present time, ms; the component is rendered again at each step. */
export function useMinute(): number {
  useEffect(() => {
    users += 1;
    timer ??= setInterval(() => {
      steps.value += 1;
    }, STEP_MS);
    return () => {
      users -= 1;
      if (users > 0) return;
      clearInterval(timer);
      timer = undefined;
    };
  }, []);
  steps.value;
  return Date.now();
}
