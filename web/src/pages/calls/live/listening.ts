/** Listening in to a live call: what comes is played, and nothing is sent. No microphone is opened. */

import { signal } from "@preact/signals";

import { ApiError, get, socketAddress } from "../../../api/client";
import { t } from "../../../texts";

/** Of the server's frames: signed 16 bits, the caller left and the agent right. */
const RATE = 16000;
const CHANNELS = 2;
/** Sound that waits for its time, so that frames that come late leave no gap; more is dropped, to stay live. */
const BUFFER_S = 0.1;
const MAX_BUFFER_S = 0.6;

const UPGRADE_REQUIRED = 426;

/** What the server closes with. */
const CALL_ENDED = 1000;
const POLICY_VIOLATION = 1008;
const TOO_SLOW = "The client reads too slowly";

/** The last four: why it is over. */
export type ListeningState = "off" | "connecting" | "on" | "ended" | "tooSlow" | "forbidden" | "lost";

export class Listening {
  readonly state = signal<ListeningState>("off");
  /** Why the server refuses; "" if it does not. */
  readonly problem = signal("");
  /** Seconds of sound that were played. */
  readonly playedS = signal(0);

  #socket: WebSocket | null = null;
  #context: AudioContext | null = null;
  #nextAt = 0;

  async start(callId: string): Promise<void> {
    this.stop();
    this.state.value = "connecting";
    this.problem.value = "";
    this.playedS.value = 0;
    const path = `/v1/calls/${encodeURIComponent(callId)}/listen`;
    const context = new AudioContext();
    const socket = new WebSocket(socketAddress(path));
    socket.binaryType = "arraybuffer";
    this.#context = context;
    this.#socket = socket;
    let opened = false;
    socket.onopen = () => {
      opened = true;
      this.state.value = "on";
    };
    socket.onmessage = ({ data }: MessageEvent<ArrayBuffer>) => this.#play(context, data);
    socket.onclose = (event) => {
      this.#release();
      this.state.value = opened ? stateAfter(event) : "off";
      if (!opened) void this.#explain(path);
    };
    await context.resume();
  }

  stop(): void {
    if (this.#socket !== null) this.#socket.onopen = this.#socket.onclose = this.#socket.onmessage = null;
    this.#socket?.close();
    this.#release();
    this.state.value = "off";
  }

  #release(): void {
    void this.#context?.close();
    this.#socket = this.#context = null;
    this.#nextAt = 0;
  }

  /** A browser does not tell a page why a WebSocket was refused; the same address without it does. */
  async #explain(path: string): Promise<void> {
    try {
      await get(path);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.problem.value = refusalOf(error);
    }
  }

  #play(context: AudioContext, frame: ArrayBuffer): void {
    const samples = new Int16Array(frame);
    const sound = context.createBuffer(CHANNELS, samples.length / CHANNELS, RATE);
    for (let channel = 0; channel < CHANNELS; channel += 1) {
      const values = sound.getChannelData(channel);
      for (let at = 0; at < values.length; at += 1) values[at] = (samples[at * CHANNELS + channel] ?? 0) / 32768;
    }
    const now = context.currentTime;
    if (this.#nextAt > now + MAX_BUFFER_S) return;
    if (this.#nextAt < now) this.#nextAt = now + BUFFER_S;
    const source = context.createBufferSource();
    source.buffer = sound;
    source.connect(context.destination);
    source.start(this.#nextAt);
    this.#nextAt += sound.duration;
    this.playedS.value += sound.duration;
  }
}

function stateAfter({ code, reason }: CloseEvent): ListeningState {
  if (code === CALL_ENDED) return "ended";
  if (code !== POLICY_VIOLATION) return "lost";
  return reason === TOO_SLOW ? "tooSlow" : "forbidden";
}

/** The server demands a WebSocket only of a request that it would have accepted with one. */
function refusalOf(error: ApiError): string {
  if (error.status === UPGRADE_REQUIRED) return t.states.noWebSocket;
  return error.status === 0 ? t.states.unreachable : error.message;
}
