/** Taking a live call over, after a confirmation that names the call; then the controls of a phone. */

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import type { Schemas } from "../../../api/client";
import { useLeaveGuard } from "../../../app/leave_guard";
import { ConfirmDialog } from "../../../components/dialog";
import { t } from "../../../texts";
import { MicrophoneChoice, MicrophoneNotice } from "../../test_call/microphone_choice";
import { KeyPad, Levels, MicrophoneDetails } from "../../test_call/phone_controls";
import { namedParty } from "../kind";
import { Takeover } from "./takeover";

/** `onTalking` is called once the person talks with the caller. */
export function TakeoverPanel({ call, onTalking }: { call: Schemas["Call"]; onTalking: () => void }) {
  const takeover = useMemo(() => new Takeover(), [call.id]);
  const asked = useSignal(false);
  const { phone } = takeover;
  const phase = takeover.phase.value;
  const { live } = t.call;
  useEffect(() => {
    const leave = () => takeover.leave();
    window.addEventListener("pagehide", leave);
    return () => {
      window.removeEventListener("pagehide", leave);
      leave();
    };
  }, [takeover]);
  useEffect(() => {
    if (phase === "talking") onTalking();
  }, [phase]);
  useLeaveGuard(phase === "talking" ? live.leave : null);
  if (phase === "over") {
    return (
      <>
        <MicrophoneNotice phone={phone} />
        <p role="status">{takeover.connectionLost.value ? t.testCall.lost : live.over}</p>
      </>
    );
  }
  if (phase === "talking") return <Conversation call={call} takeover={takeover} />;
  return (
    <>
      <MicrophoneNotice phone={phone} />
      <div class="live-controls">
        <button
          type="button"
          disabled={phase === "starting"}
          onClick={() => {
            asked.value = true;
          }}
        >
          {live.takeOver}
        </button>
        <span role="alert" class="problem">
          {takeover.problem.value}
        </span>
        {asked.value && (
          <ConfirmDialog
            title={live.confirmTakeOver(namedParty(call))}
            text={live.confirmTakeOverText}
            action={live.takeOver}
            onConfirm={() => {
              asked.value = false;
              void takeover.start(call.id);
            }}
            onClose={() => {
              asked.value = false;
            }}
          >
            <MicrophoneChoice phone={phone} />
          </ConfirmDialog>
        )}
      </div>
    </>
  );
}

function Conversation({ call, takeover }: { call: Schemas["Call"]; takeover: Takeover }) {
  const { phone } = takeover;
  const { live } = t.call;
  return (
    <>
      <p role="status">{live.talking(namedParty(call))}</p>
      <div class="live-controls">
        <button type="button" aria-pressed={phone.muted.value} onClick={() => phone.mute(!phone.muted.value)}>
          {phone.muted.value ? live.unmute : live.mute}
        </button>
        <button type="button" class="danger" onClick={() => takeover.hangUp()}>
          {live.hangUp}
        </button>
      </div>
      <MicrophoneNotice phone={phone} />
      <Levels phone={phone} other={live.caller} />
      <KeyPad phone={phone} />
      <MicrophoneDetails phone={phone} />
    </>
  );
}
