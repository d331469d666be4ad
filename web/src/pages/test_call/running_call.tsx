/** The controls of a call that is under way: state, levels, mute, keys, hang up. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { t } from "../../texts";
import { duration } from "../../texts/format";
import { MicrophoneChoice, MicrophoneNotice } from "./microphone_choice";
import type { TestCall } from "./test_call";

const KEYS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "*", "0", "#"] as const;

export function RunningCall({ call }: { call: TestCall }) {
  const { testCall } = t;
  const starting = call.phase.value === "starting";
  return (
    <>
      <div class="test-call-bar">
        <span class="badge badge-live" role="status">
          {starting ? testCall.starting : (testCall.states[call.state.value] ?? call.state.value)}
        </span>
        <Elapsed since={call.startedAt.value} />
        <button type="button" aria-pressed={call.muted.value} onClick={() => call.setMuted(!call.muted.value)}>
          {call.muted.value ? testCall.unmute : testCall.mute}
        </button>
        <button type="button" class="danger" onClick={() => call.hangUp()}>
          {testCall.hangUp}
        </button>
      </div>
      <MicrophoneNotice call={call} />
      <Levels call={call} />
      <details>
        <summary>{testCall.keys}</summary>
        <div class="key-pad">
          {KEYS.map((key) => (
            <button key={key} type="button" aria-label={testCall.key(key)} onClick={() => call.press(key)}>
              {key}
            </button>
          ))}
        </div>
      </details>
      <details>
        <summary>{testCall.microphone}</summary>
        <MicrophoneChoice call={call} />
      </details>
    </>
  );
}

function Levels({ call }: { call: TestCall }) {
  const { caller, agent } = call.levels.value;
  return (
    <div class="levels">
      <span>{t.testCall.levels.caller}</span>
      <meter aria-label={t.testCall.levels.caller} min={0} max={1} value={heard(caller)} />
      <span>{t.testCall.levels.agent}</span>
      <meter aria-label={t.testCall.levels.agent} min={0} max={1} value={heard(agent)} />
    </div>
  );
}

/** A peak as loudness is felt: -50 dB and less are 0. */
function heard(peak: number): number {
  return peak === 0 ? 0 : Math.max(0, 1 + Math.log10(peak) / 2.5);
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
