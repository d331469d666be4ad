/** What happens now: live calls, the one that is chosen with its words, capacity, and the trunks of the numbers. */

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { useLocation } from "preact-iso";

import { everything, get, type Schemas } from "../../api/client";
import { eventsArrive, useEvents } from "../../api/events";
import { useResource } from "../../api/resource";
import { useTitle } from "../../app/title";
import { ConnectionState } from "../../components/connection_state";
import { LoadedView } from "../../components/loaded_view";
import { t } from "../../texts";
import { CapacityPanel } from "./capacity_panel";
import { ChosenCall } from "./chosen_call";
import { useClock } from "./clock";
import { LiveCallTable } from "./live_call_table";
import { LiveCalls } from "./live_calls";
import { NodeTable } from "./node_table";
import { TrunkTable } from "./trunk_table";

type Capacity = Schemas["Capacity"];
type PhoneNumber = Schemas["PhoneNumber"];

export default function LivePage() {
  const { query } = useLocation();
  const calls = useMemo(() => new LiveCalls(), []);
  const capacity = useSignal<Capacity | null>(null);
  const numbers = useSignal<readonly PhoneNumber[]>([]);
  useTitle(t.live.title);
  useClock();

  const loaded = useResource(async (signal) => {
    await eventsArrive();
    const [, now, all] = await Promise.all([
      calls.load(signal),
      get<Capacity>("/v1/capacity", {}, signal),
      everything<PhoneNumber>("/v1/phone-numbers", signal),
    ]);
    capacity.value = now;
    numbers.value = all;
  }, []);
  useEvents({
    "call.created": (call) => calls.update(call),
    "call.updated": (call) => calls.update(call),
    "call.ended": (call) => calls.update(call),
    "capacity.updated": (now) => {
      capacity.value = now;
    },
    "number.updated": (changed) => {
      numbers.value = withChange(numbers.value, changed);
    },
    resync: loaded.reload,
  });

  return (
    <>
      <div class="title-bar">
        <h1>{t.live.title}</h1>
        <ConnectionState />
      </div>
      <LoadedView resource={loaded}>
        {() => (
          <>
            {capacity.value !== null && <CapacityPanel capacity={capacity.value} />}
            <div class={query.call ? "live live-chosen" : "live"}>
              <LiveCallTable calls={calls} chosen={query.call ?? ""} />
              {query.call && (
                <ChosenCall key={query.call} id={query.call} calls={calls} nodes={capacity.value?.nodes.length ?? 0} />
              )}
            </div>
            <NodeTable nodes={capacity.value?.nodes ?? []} />
            <TrunkTable numbers={numbers.value} />
          </>
        )}
      </LoadedView>
    </>
  );
}

function withChange(numbers: readonly PhoneNumber[], changed: PhoneNumber | Schemas["Deleted"]): PhoneNumber[] {
  if ("deleted" in changed) return numbers.filter((each) => each.id !== changed.id);
  if (!numbers.some((each) => each.id === changed.id)) return [changed, ...numbers];
  return numbers.map((each) => (each.id === changed.id ? changed : each));
}
