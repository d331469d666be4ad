/** The values of a form, and which of them differ from those that are stored. */

import { type Signal, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";

export interface Draft<T> {
  values: Signal<T>;
  /** Set one value. */
  set: <Name extends keyof T>(name: Name, value: T[Name]) => void;
  dirty: boolean;
}

export function useDraft<T extends object>(stored: T): Draft<T> {
  const values = useSignal(stored);
  const before = useRef(stored);
  if (JSON.stringify(before.current) !== JSON.stringify(stored)) {
    // Stored anew, here or by someone else: what is being edited stays, the rest follows.
    values.value = { ...stored, ...changes(before.current, values.peek()) };
    before.current = stored;
  }
  return {
    values,
    set: (name, value) => {
      values.value = { ...values.value, [name]: value };
    },
    dirty: Object.keys(changes(stored, values.value)).length > 0,
  };
}

/** What differs from the stored values. */
export function changes<T extends object>(stored: T, draft: T): Partial<T> {
  const names = Object.keys(draft) as (keyof T)[];
  return Object.fromEntries(
    names
      .filter((name) => JSON.stringify(draft[name]) !== JSON.stringify(stored[name]))
      .map((name) => [name, draft[name]]),
  ) as Partial<T>;
}

/** The lines of a text that have something in them. */
export function lines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}
