/** A request that changes something, with what a form shows of it. */

import { type Signal, useSignal } from "@preact/signals";

import { t } from "../texts";
import { ApiError } from "./client";

export interface Saving {
  busy: Signal<boolean>;
  /** What is wrong with the request as a whole; "" if nothing is. */
  problem: Signal<string>;
  /** What is wrong with each field, by its path in the body, as in `config.url`. */
  fields: Signal<Readonly<Record<string, string>>>;
  /** Run the request. Returns whether it succeeded. */
  run: (request: () => Promise<unknown>) => Promise<boolean>;
}

export function useSaving(): Saving {
  const busy = useSignal(false);
  const problem = useSignal("");
  const fields = useSignal<Readonly<Record<string, string>>>({});
  async function run(request: () => Promise<unknown>): Promise<boolean> {
    busy.value = true;
    problem.value = "";
    fields.value = {};
    try {
      await request();
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.value = error.status === 0 ? t.states.unreachable : error.message;
      fields.value = Object.fromEntries(error.details.map(({ field, message }) => [field, message]));
      return false;
    } finally {
      busy.value = false;
    }
  }
  return { busy, problem, fields, run };
}
