/** Taking a live call over, after a confirmation that names the call; then hanging up and muting. */

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import type { Schemas } from "../../../api/client";
import { useLeaveGuard } from "../../../app/leave_guard";
import { ConfirmDialog } from "../../../components/dialog";
import { t } from "../../../texts";
import { Takeover } from "./takeover";

/** `onTalking` is called once the person talks with the caller. */
export function TakeoverPanel({ call, onTalking }: { call: Schemas["Call"]; onTalking: () => void }) {
  const takeover = useMemo(() => new Takeover(), [call.id]);
  const asked = useSignal(false);
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
  if (phase === "over") return <p role="status">{live.over}</p>;
  if (phase === "talking") {
    return (
      <>
        <p role="status">{live.talking(call.customerNumber)}</p>
        <div class="live-controls">
          <button
            type="button"
            aria-pressed={takeover.muted.value}
            onClick={() => takeover.mute(!takeover.muted.value)}
          >
            {takeover.muted.value ? live.unmute : live.mute}
          </button>
          <button type="button" class="danger" onClick={() => takeover.hangUp()}>
            {live.hangUp}
          </button>
        </div>
      </>
    );
  }
  return (
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
          title={live.confirmTakeOver(call.customerNumber)}
          text={live.confirmTakeOverText}
          action={live.takeOver}
          onConfirm={() => {
            asked.value = false;
            void takeover.start(call.id);
          }}
          onClose={() => {
            asked.value = false;
          }}
        />
      )}
    </div>
  );
}
