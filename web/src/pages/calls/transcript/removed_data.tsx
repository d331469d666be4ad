/** Why a call has no recording or no transcript, and since when. */

import type { Schemas } from "../../../api/client";
import { t } from "../../../texts";
import { relativeAndAbsoluteTime } from "../../../texts/format";

type Call = Schemas["Call"];

export function NoRecording({ call }: { call: Call }) {
  return <p class="notice">{reasonOf(call)}</p>;
}

/** Null while there is a transcript. */
export function TranscriptRemoved({ call }: { call: Call }) {
  if (!call.transcriptRemovedAt) return null;
  return <p class="notice">{t.call.transcript.removed(relativeAndAbsoluteTime(call.transcriptRemovedAt))}</p>;
}

function reasonOf(call: Call): string {
  const { recording } = t.call;
  if (call.recordingRemovedAt) return recording.removed(relativeAndAbsoluteTime(call.recordingRemovedAt));
  if (call.recordingAbsentReason === "disabled") return recording.disabled;
  if (call.endedReason === null) return recording.notYet;
  if (call.startedAt === null) return recording.notAnswered;
  return recording.none;
}
