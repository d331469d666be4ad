/** A value that is loaded from the server, with the states that a page shows. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { ApiError } from "./client";

export type Loaded<T> = { state: "loading" } | { state: "ready"; value: T } | { state: "failed"; error: ApiError };

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

/** Load a value now and whenever a dependency changes; an answer that comes too late is dropped. */
export function useResource<T>(
  load: (signal: AbortSignal) => Promise<T>,
  dependencies: readonly unknown[],
): Resource<T> {
  const current = useSignal<Loaded<T>>({ state: "loading" });
  const attempt = useSignal(0);
  const reload = () => {
    attempt.value += 1;
  };
  useEffect(() => {
    const aborter = new AbortController();
    if (current.value.state === "failed") current.value = { state: "loading" };
    load(aborter.signal).then(
      (value) => {
        if (!aborter.signal.aborted) current.value = { state: "ready", value };
      },
      (error: unknown) => {
        if (aborter.signal.aborted) return;
        if (!(error instanceof ApiError)) throw error;
        current.value = { state: "failed", error };
        if (error.status === 0) unanswered.add(reload);
      },
    );
    return () => {
      aborter.abort();
      unanswered.delete(reload);
    };
  }, [...dependencies, attempt.value]);
  return { current, reload };
}
