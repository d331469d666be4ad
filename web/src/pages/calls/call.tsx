/** The page of one call: recording, transcript, turns, media, SIP messages and webhooks on one clock. */

import { useMemo } from "preact/hooks";
import { useLocation } from "preact-iso";

import { get, type Schemas } from "../../api/client";
import { useEvents } from "../../api/events";
import { useResource } from "../../api/resource";
import { useAtMostOnce } from "../../app/at_most_once";
import { useTab } from "../../app/tab";
import { useTitle } from "../../app/title";
import { LoadedView } from "../../components/loaded_view";
import { Tabs } from "../../components/tabs";
import { t } from "../../texts";
import { CallActions } from "./call_actions";
import { CallSummary, Transfers } from "./call_details";
import { CallFacts } from "./call_facts";
import { isChat, titleOf } from "./kind";
import { LiveControls } from "./live/live_controls";
import { MediaQualityTable } from "./media_quality";
import { Playback } from "./recording/playback";
import { RecordingPlayer } from "./recording/recording_player";
import { TimelineMarkers } from "./recording/timeline_markers";
import { ReplayPanel } from "./replay/replay_panel";
import { SipMessages } from "./sip_messages";
import { NoRecording, TranscriptRemoved } from "./transcript/removed_data";
import { TranscriptView } from "./transcript/transcript_view";
import { TurnWaterfall } from "./turn_waterfall";
import { WebhookAttempts } from "./webhook_attempts";

type Call = Schemas["Call"];
type Transcript = Schemas["Transcript"];
type Timeline = Schemas["Timeline"];

/** Between two refreshes because of events. */
const REFRESH_MS = 2000;
const TABS = ["transcript", "turns", "replay", "analysis", "transfers", "media", "sip", "webhooks"] as const;
type Tab = (typeof TABS)[number];
/** What tests do not have: a browser's call has no SIP dialog, a chat no sound either. */
const MISSING: Partial<Record<string, readonly Tab[]>> = { web: ["sip"], chat: ["replay", "media", "sip", "webhooks"] };
/** What they show is deleted with the transcript, as are the texts of transfers. */
const OF_TALK: ReadonlySet<Tab> = new Set<Tab>(["transcript", "turns", "analysis", "sip", "webhooks"]);

export default function CallPage({ id }: { id: string }) {
  const call = useResource((signal) => get<Call>(`/v1/calls/${encodeURIComponent(id)}`, {}, signal), [id]);
  const refresh = useAtMostOnce(REFRESH_MS, call.reload);
  const follow = (changed: { id: string }) => {
    if (changed.id === id) refresh();
  };
  useEvents({ "call.updated": follow, "call.ended": follow, resync: refresh });
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
  const [tab, show] = useTab(tabsOf(call), "transcript");
  const path = `/v1/calls/${call.id}`;
  const playback = useMemo(() => new Playback(Number.parseFloat(query.t ?? "0") || 0), [query.t]);
  const transcript = useResource(
    (signal) => get<Transcript>(`${path}/transcript`, { include: "tools,words" }, signal),
    [path],
    [call],
  );
  const timeline = useResource((signal) => get<Timeline>(`${path}/timeline`, {}, signal), [path], [call]);
  const recorded = call.recordingUrl === null ? null : playback;
  const written = isChat(call);
  const takenOverBy = timeline.current.value.state === "ready" ? timeline.current.value.value.takeover?.by : undefined;
  useTitle(titleOf(call));
  const removed = Boolean(call.transcriptRemovedAt);

  return (
    <article>
      <div class="title-bar">
        <h1 class="clip">{titleOf(call)}</h1>
        <CallActions call={call} />
      </div>
      <CallFacts call={call} takenOverBy={takenOverBy} />
      {!written && <LiveControls call={call} />}
      {call.recordingUrl === null ? (
        !written && <NoRecording call={call} />
      ) : (
        <RecordingPlayer path={path} playback={playback}>
          {timeline.current.value.state === "ready" && (
            <TimelineMarkers
              timeline={timeline.current.value.value}
              transcript={transcript.current.value.state === "ready" ? transcript.current.value.value : null}
              playback={playback}
            />
          )}
        </RecordingPlayer>
      )}
      <Tabs
        label={t.call.tabs}
        tabs={tabsOf(call).map((each) => [each, t.call[each].title] as const)}
        selected={tab}
        onSelect={show}
      >
        {(OF_TALK.has(tab) || tab === "transfers") && <TranscriptRemoved call={call} />}
        {tab === "transcript" && !removed && (
          <LoadedView resource={transcript}>
            {(value) => (
              <TranscriptView
                items={value.transcript}
                timeline={timeline.current.value.state === "ready" ? timeline.current.value.value : null}
                playback={recorded}
              />
            )}
          </LoadedView>
        )}
        {tab === "turns" && !removed && (
          <LoadedView resource={timeline}>
            {(value) => (
              <TurnWaterfall
                turns={value.turns}
                timeline={value}
                playback={recorded}
                written={written}
                agentId={call.agentId}
              />
            )}
          </LoadedView>
        )}
        {tab === "replay" && <ReplayPanel call={call} playback={recorded} />}
        {tab === "sip" && !removed && <SipMessages call={call} />}
        {tab === "webhooks" && !removed && <WebhookAttempts path={path} />}
        {tab === "analysis" && !removed && <CallSummary call={call} />}
        {tab === "transfers" && <Transfers transfers={call.transferCalls} />}
        {tab === "media" && <MediaQualityTable quality={call.mediaQuality} />}
      </Tabs>
    </article>
  );
}

function tabsOf(call: Call): Tab[] {
  const missing = MISSING[call.provider ?? ""] ?? [];
  const shown: Partial<Record<Tab, boolean>> = {
    transfers: (call.transferCalls ?? []).length > 0,
    replay: call.endedAt !== null,
  };
  return TABS.filter((each) => !missing.includes(each) && (shown[each] ?? true));
}
