/** The chosen live call: its state, its words as they are said, and what can be done with it. */

import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { get, type Schemas } from "../../api/client";
import { useEvents } from "../../api/events";
import { useResource } from "../../api/resource";
import { LoadedView } from "../../components/loaded_view";
import { t } from "../../texts";
import { Fact } from "../calls/call_facts";
import { titleOf } from "../calls/kind";
import { TranscriptView } from "../calls/transcript/transcript_view";
import { HangUp } from "./hang_up";
import { Elapsed } from "./live_call_table";
import type { Call, LiveCalls } from "./live_calls";
import { StateBadge } from "./state_badge";

type Item = Schemas["TranscriptItem"];

/** `nodes`: how many servers there are. */
export function ChosenCall({ id, calls, nodes }: { id: string; calls: LiveCalls; nodes: number }) {
  const ids = calls.ids.value;
  const call = ids.includes(id) ? calls.of(id) : undefined;
  return (
    <section class="panel" aria-label={t.live.chosen}>
      {call === undefined ? (
        <p class="notice">
          {t.live.over} <a href={`/calls/${encodeURIComponent(id)}`}>{t.live.open}</a>
        </p>
      ) : (
        <>
          <ChosenFacts call={call} nodes={nodes} />
          <LiveTranscript id={id} call={call} />
        </>
      )}
    </section>
  );
}

function ChosenFacts({ call, nodes }: { call: ReadonlySignal<Call>; nodes: number }) {
  const { id, state, live, calledNumber, node } = call.value;
  const { facts } = t.live;
  return (
    <>
      <div class="title-bar">
        <h2 class="clip">{titleOf(call.value)}</h2>
        <div class="actions">
          <a href={`/calls/${id}`}>{t.live.open}</a>
          <HangUp call={call.value} />
        </div>
      </div>
      <dl class="facts">
        <Fact name={facts.state}>
          <StateBadge state={state} />
        </Fact>
        <Fact name={facts.duration}>
          <Elapsed call={call} />
        </Fact>
        {calledNumber !== null && <Fact name={facts.number}>{calledNumber}</Fact>}
        {nodes > 1 && node !== null && <Fact name={facts.node}>{node}</Fact>}
        {live?.responseGapMs != null && <Fact name={facts.gap}>{t.live.ms(live.responseGapMs)}</Fact>}
        {live?.lossPercent != null && (
          <Fact name={facts.loss}>{t.live.bothWays(live.lossPercent, live.sentLossPercent, t.live.percent)}</Fact>
        )}
        {live?.mos != null && <Fact name={facts.mos}>{t.live.bothWays(live.mos, live.sentMos, t.live.mos)}</Fact>}
      </dl>
    </>
  );
}

/** The words so far, then each turn as it is over, and the caller's words as they come. */
function LiveTranscript({ id, call }: { id: string; call: ReadonlySignal<Call> }) {
  const said = useSignal<readonly Item[]>([]);
  const end = useRef<HTMLDivElement>(null);
  const loaded = useResource(
    async (signal) => {
      const begun = said.value.length;
      const stored = await get<Schemas["Transcript"]>(`/v1/calls/${encodeURIComponent(id)}/transcript`, {}, signal);
      const items = stored.transcript.filter((item): item is Item => item.role !== "tool");
      said.value = [...items, ...said.value.slice(begun).filter((item) => !items.some((each) => same(each, item)))];
    },
    [id],
  );
  useEvents({
    "call.turn": (turn) => {
      if (turn.callId === id && turn.content !== "") said.value = [...said.value, turn];
    },
    resync: loaded.reload,
  });
  const partial = call.value.live?.partialTranscript ?? null;
  useEffect(() => {
    end.current?.scrollIntoView({ block: "nearest" });
  }, [said.value.length]);
  return (
    <LoadedView resource={loaded}>
      {() => (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard
        <div class="live-transcript" role="log" aria-label={t.live.transcript} tabIndex={0}>
          <TranscriptView items={said.value} playback={null} />
          {partial !== null && (
            <p class="entry entry-user partial">
              <span class="entry-head">{t.live.speaks}</span> <bdi>{partial}</bdi> …
            </p>
          )}
          <div ref={end} />
        </div>
      )}
    </LoadedView>
  );
}

function same(one: Item, other: Item): boolean {
  return one.role === other.role && one.startMs === other.startMs && one.content === other.content;
}
