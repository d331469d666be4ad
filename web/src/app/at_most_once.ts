/** Does something again and again, but not too often. */

import { useEffect, useRef } from "preact/hooks";

/** Returns a function that runs `work`, at once, and then at most once in `everyMs`; the last wish is not lost. */
export function useAtMostOnce(everyMs: number, work: () => void): () => void {
  const state = useRef<{ timer?: ReturnType<typeof setTimeout>; again: boolean; work: () => void }>({
    again: false,
    work,
  });
  state.current.work = work;
  useEffect(() => () => clearTimeout(state.current.timer), []);
  function run(): void {
    const { current } = state;
    if (current.timer !== undefined) {
      current.again = true;
      return;
    }
    current.again = false;
    current.work();
    current.timer = setTimeout(() => {
      delete current.timer;
      if (current.again) run();
    }, everyMs);
  }
  return run;
}
