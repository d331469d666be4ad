/** The page of one call: recording, transcript, turns, SIP messages and webhooks on one clock. */

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { useLocation } from "preact-iso";

import { get, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { useTitle } from "../../app/title";
import { LoadedView } from "../../components/loaded_view";
import { StatusBadge } from "../../components/status_badge";
import { Tabs } from "../../components/tabs";
import { Time } from "../../components/time";
import { t } from "../../texts";
import { duration } from "../../texts/format";
import { Playback } from "./playback";
import { RecordingPlayer } from "./recording_player";
import { SipMessages } from "./sip_messages";
import { TranscriptView } from "./transcript_view";
import { TurnWaterfall } from "./turn_waterfall";
import { WebhookAttempts } from "./webhook_attempts";

type Call = Schemas["Call"];
type Transcript = Schemas["Transcript"];
type Timeline = Schemas["Timeline"];

const TABS = ["transcript", "turns", "sip", "webhooks", "analysis"] as const;
type Tab = (typeof TABS)[number];

export default function CallPage({ id }: { id: string }) {
  const call = useResource((signal) => get<Call>(`/v1/calls/${encodeURIComponent(id)}`, {}, signal), [id]);
  return (
    <>
      <a class="back" href="/calls">
        {t.call.back}
      </a>
      <LoadedView resource={call}>{(value) => <CallView call={value} />}</LoadedView>
    </>
  );
}

function CallView({ call }: { call: Call }) {
  const { query } = useLocation();
  const tab = useSignal<Tab>("transcript");
  const path = `/v1/calls/${call.id}`;
  const playback = useMemo(() => new Playback(Number.parseFloat(query.t ?? "0") || 0), [query.t]);
  const transcript = useResource(
    (signal) => get<Transcript>(`${path}/transcript`, { include: "tools" }, signal),
    [call.id],
  );
  const timeline = useResource((signal) => get<Timeline>(`${path}/timeline`, {}, signal), [call.id]);
  useTitle(t.call.title(call.customerNumber));

  return (
    <article>
      <h1 class="clip">{t.call.title(call.customerNumber)}</h1>
      <Facts call={call} />
      {call.recordingUrl === null ? (
        <p class="notice">{t.call.recording.none}</p>
      ) : (
        <RecordingPlayer address={`${path}/recording`} playback={playback} />
      )}
      <Tabs
        label={t.call.tabs}
        tabs={TABS.map((each) => [each, t.call[each].title] as const)}
        selected={tab.value}
        onSelect={(name) => {
          tab.value = name;
        }}
      >
        {tab.value === "transcript" && (
          <LoadedView resource={transcript}>
            {(value) => <TranscriptView items={value.transcript} playback={playback} />}
          </LoadedView>
        )}
        {tab.value === "turns" && (
          <LoadedView resource={timeline}>
            {(value) => <TurnWaterfall turns={value.turns} playback={playback} />}
          </LoadedView>
        )}
        {tab.value === "sip" && <SipMessages path={path} />}
        {tab.value === "webhooks" && <WebhookAttempts path={path} />}
        {tab.value === "analysis" && <Analysis call={call} />}
      </Tabs>
    </article>
  );
}

function Facts({ call }: { call: Call }) {
  const { facts } = t.call;
  const ended = call.endedReason === null ? "" : (t.call.endedReason[call.endedReason] ?? call.endedReason);
  const agent = useResource(
    async (signal) =>
      call.agentId === null ? null : await get<Schemas["Agent"]>(`/v1/agents/${call.agentId}`, {}, signal),
    [call.agentId],
  );
  const name = agent.current.value.state === "ready" ? agent.current.value.value?.name : undefined;
  return (
    <dl class="facts">
      <Fact name={facts.status}>
        <StatusBadge status={call.status} />
      </Fact>
      {ended !== "" && <Fact name={facts.ended}>{ended}</Fact>}
      <Fact name={facts.agent}>{name ?? t.calls.deletedAgent}</Fact>
      <Fact name={facts.number}>{call.calledNumber}</Fact>
      {call.startedAt !== null && (
        <Fact name={facts.started}>
          <Time iso={call.startedAt} />
        </Fact>
      )}
      {call.durationSeconds !== null && <Fact name={facts.duration}>{duration(call.durationSeconds)}</Fact>}
      {typeof call.cost === "number" && <Fact name={facts.cost}>{call.cost.toFixed(4)}</Fact>}
      {call.mediaQuality && <Fact name={facts.codec}>{call.mediaQuality.codec}</Fact>}
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class="clip">{children}</dd>
    </div>
  );
}

function Analysis({ call }: { call: Call }) {
  const { analysis } = call;
  if (!analysis) return <p class="notice">{t.call.analysis.none}</p>;
  return (
    <dl class="facts">
      {Object.entries(analysis).map(([name, value]) => (
        <Fact key={name} name={name}>
          {typeof value === "string" ? value : JSON.stringify(value)}
        </Fact>
      ))}
    </dl>
  );
}
