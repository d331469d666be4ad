/** A panel that calls an agent by this device's microphone. It hangs up when it goes away. */

import { useEffect, useMemo } from "preact/hooks";

import { hasRole } from "../../app/session";
import { t } from "../../texts";
import { TurnWaterfall } from "../calls/turn_waterfall";
import { CallSetup } from "./call_setup";
import { LiveConversation } from "./live_conversation";
import { RunningCall } from "./running_call";
import { TestCall } from "./test_call";

interface Props {
  agentId: string;
  /** The agent's present version. */
  version: number;
}

export function TestCallPanel({ agentId, version }: Props) {
  const call = useMemo(() => new TestCall(), [agentId]);
  useEffect(() => {
    const leave = () => call.leave();
    addEventListener("pagehide", leave);
    return () => {
      removeEventListener("pagehide", leave);
      leave();
    };
  }, [call]);
  if (!hasRole("editor")) return <p class="notice">{t.testCall.forbidden}</p>;
  const phase = call.phase.value;
  return (
    <section class="panel" aria-label={t.testCall.title}>
      <h2>{t.testCall.title}</h2>
      {phase === "idle" || phase === "ended" ? (
        <>
          {phase === "ended" && <CallEnd call={call} />}
          <CallSetup call={call} agentId={agentId} present={version} />
        </>
      ) : (
        <RunningCall call={call} />
      )}
      {phase !== "idle" && <LiveConversation call={call} />}
      {call.turns.value.length > 0 && (
        <>
          <h3>{t.testCall.turns}</h3>
          <TurnWaterfall turns={call.turns.value} playback={null} />
        </>
      )}
    </section>
  );
}

function CallEnd({ call }: { call: TestCall }) {
  const { testCall } = t;
  const reason = call.endedReason.value;
  return (
    <p role="status">
      {reason === null
        ? call.connectionLost.value && testCall.lost
        : testCall.ended(t.call.endedReason[reason] ?? reason)}{" "}
      {call.callId.value !== null && <a href={`/calls/${call.callId.value}`}>{testCall.open}</a>}
    </p>
  );
}
