/** What a call was: parties, agent, times, why it ended and who ended it. */

import type { ComponentChildren } from "preact";

import { get, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { StatusBadge } from "../../components/status_badge";
import { Time } from "../../components/time";
import { t } from "../../texts";
import { duration } from "../../texts/format";
import { directionOf, isChat } from "./kind";

type Call = Schemas["Call"];

interface Props {
  call: Call;
  /** Who has taken the call over from its agent, if that is known. */
  takenOverBy: string | undefined;
}

export function CallFacts({ call, takenOverBy }: Props) {
  const { facts } = t.call;
  return (
    <dl class="facts">
      <Fact name={facts.status}>
        <StatusBadge status={call.status} />
      </Fact>
      {call.endedReason !== null && (
        <Fact name={facts.ended}>
          {takenOverBy !== undefined && call.endedReason === "agent_ended"
            ? t.call.personEnded(takenOverBy)
            : (t.call.endedReason[call.endedReason] ?? call.endedReason)}
          {call.sipEnd?.byPeer === true && <span class="quiet"> ({t.call.byPeer})</span>}
          {call.sipEnd?.byPeer === false && <span class="quiet"> ({t.call.byServer})</span>}
        </Fact>
      )}
      <SipEndFact end={call.sipEnd} />
      <Fact name={facts.direction}>{directionOf(call)}</Fact>
      <Fact name={facts.agent}>
        <AgentName call={call} />
      </Fact>
      {call.calledNumber !== null && <Fact name={facts.number}>{call.calledNumber}</Fact>}
      <Fact name={facts.created}>
        <Time iso={call.createdAt} both />
      </Fact>
      {call.startedAt !== null && (
        <Fact name={facts.started}>
          <Time iso={call.startedAt} both />
        </Fact>
      )}
      {call.durationSeconds !== null && <Fact name={facts.duration}>{duration(call.durationSeconds)}</Fact>}
      {typeof call.cost === "number" && <Fact name={facts.cost}>{call.cost.toFixed(4)}</Fact>}
      {call.parentCallId !== null && (
        <Fact name={facts.parent}>
          <a href={`/calls/${call.parentCallId}`}>{t.call.openParent}</a>
        </Fact>
      )}
      {call.mediaQuality && <Fact name={facts.codec}>{call.mediaQuality.codec}</Fact>}
    </dl>
  );
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class="wrap">{children}</dd>
    </div>
  );
}

function SipEndFact({ end }: { end: Call["sipEnd"] }) {
  if (!end || end.statusCode === null || end.statusCode === 200) return null;
  const cause = end.q850Cause === null ? "" : ` · Q.850 ${end.q850Cause} ${end.q850Text ?? ""}`;
  return <Fact name={t.call.facts.sipEnd}>{`${end.statusCode} ${end.reasonPhrase ?? ""}${cause}`}</Fact>;
}

function AgentName({ call }: { call: Call }) {
  const agent = useResource(
    async (signal) =>
      call.agentId === null ? null : await get<Schemas["Agent"]>(`/v1/agents/${call.agentId}`, {}, signal),
    [call.agentId],
  );
  const loaded = agent.current.value;
  if (call.agentId === null || loaded.state === "failed") return <>{t.calls.deletedAgent}</>;
  if (loaded.state === "loading" || loaded.value === null) return null;
  return (
    <>
      <a href={`/agents/${call.agentId}`}>{loaded.value.name}</a>{" "}
      {isChat(call) && call.agentVersion === null && <span class="quiet">{t.call.draft}</span>}
      {call.agentVersion !== null && (
        <a class="quiet" href={`/agents/${call.agentId}?version=${call.agentVersion}`}>
          {call.agentVersion === loaded.value.version
            ? t.call.version(call.agentVersion)
            : t.call.olderVersion(call.agentVersion, loaded.value.version)}
        </a>
      )}
    </>
  );
}
