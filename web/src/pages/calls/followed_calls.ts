/** A page of the list of calls, kept up to date by events, without asking the server again. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import type { Schemas } from "../../api/client";
import { useEvents } from "../../api/events";

type Call = Schemas["CallListItem"];

/** Calls that may have changed before the page is loaded again. */
const MAX_CHANGED = 500;

interface Options {
  /** A new call belongs to this page. */
  takes: (call: Call) => boolean;
  /** Load the page again. */
  reload: () => void;
  /** What changes with the page. */
  page: string;
  size: number;
}

/** Returns what the events since the page was loaded make of its calls. */
export function useFollowedCalls(options: Options): (loaded: readonly Call[]) => readonly Call[] {
  const changed = useSignal<ReadonlyMap<string, Call>>(new Map());
  useEffect(() => {
    changed.value = new Map();
  }, [options.page]);
  const loadAgain = () => {
    changed.value = new Map();
    options.reload();
  };
  const follow = (call: Call) => {
    if (changed.value.size >= MAX_CHANGED) loadAgain();
    changed.value = new Map(changed.value).set(call.id, call);
  };
  useEvents({
    "call.created": follow,
    "call.updated": follow,
    "call.ended": follow,
    resync: loadAgain,
  });
  return (loaded) => {
    const known = new Set(loaded.map((call) => call.id));
    const added = [...changed.value.values()].filter((call) => !known.has(call.id) && options.takes(call));
    const all = [...added, ...loaded.map((call) => changed.value.get(call.id) ?? call)];
    return all.sort((one, other) => other.createdAt.localeCompare(one.createdAt)).slice(0, options.size);
  };
}
