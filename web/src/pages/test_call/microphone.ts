/** Opens the microphone, and says in words why that is not possible. */

import type { t } from "../../texts";

export type MicrophoneProblem = keyof typeof t.testCall.microphoneProblems;

export class MicrophoneError extends Error {
  constructor(readonly problem: MicrophoneProblem) {
    super(problem);
  }
}

/** A microphone's id and name; names are empty until one was opened. */
export interface Microphone {
  id: string;
  name: string;
}

/** Open a microphone; `""`: the browser's default. Throws `MicrophoneError`. */
export async function openMicrophone(id: string): Promise<MediaStream> {
  if (!window.isSecureContext) throw new MicrophoneError("insecure");
  if (!navigator.mediaDevices?.getUserMedia) throw new MicrophoneError("unsupported");
  const audio: MediaTrackConstraints = {
    echoCancellation: true,
    noiseSuppression: true,
    autoGainControl: true,
    channelCount: 1,
    ...(id === "" ? {} : { deviceId: { exact: id } }),
  };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    throw new MicrophoneError(problemOf(error));
  }
}

export async function microphones(): Promise<Microphone[]> {
  const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  return devices
    .filter(({ kind, deviceId }) => kind === "audioinput" && deviceId !== "")
    .map(({ deviceId, label }) => ({ id: deviceId, name: label }));
}

export function stop(stream: MediaStream): void {
  for (const track of stream.getTracks()) track.stop();
}

function problemOf(error: unknown): MicrophoneProblem {
  switch (error instanceof DOMException ? error.name : "") {
    case "NotAllowedError":
    case "SecurityError":
      return "denied";
    case "NotFoundError":
    case "OverconstrainedError":
      return "missing";
    case "NotReadableError":
    case "AbortError":
      return "busy";
    default:
      return "failed";
  }
}
