/** A value that is loaded from the server, with the states that a page shows. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { ApiError } from "./client";

/** `outdated`: why a value that was loaded before could not be refreshed. */
export type Loaded<T> =
  | { state: "loading" }
  | { state: "ready"; value: T; outdated?: ApiError }
  | { state: "failed"; error: ApiError };

export interface Resource<T> {
  current: Signal<Loaded<T>>;
  reload: () => void;
}

/** Reloads what could not be loaded because the server did not answer. */
const unanswered = new Set<() => void>();

/** The server answers again: load what it did not answer. */
export function reloadUnanswered(): void {
  for (const reload of [...unanswered]) reload();
}

/** Refusals after which the page must not show what it had. */
const GONE = [401, 403, 404];

/** Load a value now and whenever a dependency changes, and refresh it at `reload` and whenever one of `refreshes`
 * changes; an answer that comes too late is dropped. A value whose refresh fails stays. */
export function useResource<T>(
  load: (signal: AbortSignal) => Promise<T>,
  dependencies: readonly unknown[],
  refreshes: readonly unknown[] = [],
): Resource<T> {
  const current = useSignal<Loaded<T>>({ state: "loading" });
  const attempt = useSignal(0);
  /** The dependencies that the present value was loaded with. */
  const loadedWith = useRef<readonly unknown[]>([]);
  const reload = () => {
    attempt.value += 1;
  };
  useEffect(() => {
    const aborter = new AbortController();
    if (current.value.state === "failed") current.value = { state: "loading" };
    load(aborter.signal).then(
      (value) => {
        if (aborter.signal.aborted) return;
        current.value = { state: "ready", value };
        loadedWith.current = dependencies;
      },
      (error: unknown) => {
        if (aborter.signal.aborted) return;
        if (!(error instanceof ApiError)) throw error;
        const before = current.value;
        const isRefresh =
          before.state === "ready" && dependencies.every((each, index) => each === loadedWith.current[index]);
        current.value =
          isRefresh && !GONE.includes(error.status) ? { ...before, outdated: error } : { state: "failed", error };
        if (error.status === 0) unanswered.add(reload);
      },
    );
    return () => {
      aborter.abort();
      unanswered.delete(reload);
    };
  }, [...dependencies, ...refreshes, attempt.value]);
  return { current, reload };
}
