/** The controls of a call that is under way: state, levels, mute, keys, hang up. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { t } from "../../texts";
import { duration } from "../../texts/format";
import { MicrophoneNotice } from "./microphone_choice";
import { KeyPad, Levels, MicrophoneDetails } from "./phone_controls";
import type { TestCall } from "./test_call";

export function RunningCall({ call }: { call: TestCall }) {
  const { testCall } = t;
  const { phone } = call;
  const starting = call.phase.value === "starting";
  return (
    <>
      <div class="test-call-bar">
        <span class="badge badge-live" role="status">
          {starting ? testCall.starting : (testCall.states[call.state.value] ?? call.state.value)}
        </span>
        <Elapsed since={call.startedAt.value} />
        <button type="button" aria-pressed={phone.muted.value} onClick={() => phone.mute(!phone.muted.value)}>
          {phone.muted.value ? testCall.unmute : testCall.mute}
        </button>
        <button type="button" class="danger" onClick={() => call.hangUp()}>
          {testCall.hangUp}
        </button>
      </div>
      <MicrophoneNotice phone={phone} />
      <Levels phone={phone} other={testCall.levels.agent} />
      <KeyPad phone={phone} />
      <MicrophoneDetails phone={phone} />
    </>
  );
}

function Elapsed({ since }: { since: number | null }) {
  const now = useSignal(Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      now.value = Date.now();
    }, 1000);
    return () => clearInterval(timer);
  }, []);
  return <span class="figure">{duration(since === null ? 0 : (now.value - since) / 1000)}</span>;
}
