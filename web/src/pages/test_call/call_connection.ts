/** The WebSocket of a test call, or of a call that is taken over: audio frames both ways, and what the server tells of the call. */

import type { Schemas } from "../../api/client";

export type Turn = Schemas["TurnTimes"];

export interface Words {
  role: "user" | "assistant";
  content: string;
  final: boolean;
  turn: number;
}

/** What is null is known when the tool has ended. */
export interface ToolUse {
  id: number;
  turn: number;
  name: string;
  arguments: unknown;
  result: string | null;
  ok: boolean | null;
  startMs: number;
  endMs: number | null;
}

type Message =
  | { type: "state"; state: string }
  | ({ type: "transcript" } & Words)
  | ({ type: "turn" } & Turn)
  | ({ type: "tool" } & ToolUse)
  | { type: "clear" }
  | { type: "ended"; endedReason: string };

export interface ConnectionEvents {
  /** 20 ms of the other side. */
  onFrame: (frame: ArrayBuffer) => void;
  onClear?: () => void;
  onState?: (state: string) => void;
  onWords?: (words: Words) => void;
  onTurn?: (turn: Turn) => void;
  onTool?: (use: ToolUse) => void;
  onEnded?: (reason: string) => void;
  /** The connection is closed; `refused`: it never was open. */
  onClosed: (refused: boolean) => void;
}

export class CallConnection {
  readonly #socket: WebSocket;

  /** `address`: the server's, whose host may have other names than the page's. */
  constructor(address: string, events: ConnectionEvents) {
    const { pathname, search } = new URL(address);
    const url = new URL(pathname + search, location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    this.#socket = new WebSocket(url);
    this.#socket.binaryType = "arraybuffer";
    let opened = false;
    this.#socket.onopen = () => {
      opened = true;
    };
    this.#socket.onclose = () => events.onClosed(!opened);
    this.#socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
      if (typeof data === "string") tell(JSON.parse(data), events);
      else events.onFrame(data);
    };
  }

  sendFrame(frame: ArrayBuffer): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(frame);
  }

  press(digits: string): void {
    this.#send({ type: "dtmf", digits });
  }

  reportPlayed(ms: number): void {
    this.#send({ type: "played", ms });
  }

  /** The server tells the reason afterwards. */
  hangUp(): void {
    this.#send({ type: "hangup" });
  }

  /** Close at once: the page goes away. */
  close(): void {
    this.#socket.onclose = this.#socket.onmessage = null;
    this.#socket.close();
  }

  #send(message: object): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }
}

function tell(message: Message, events: ConnectionEvents): void {
  switch (message.type) {
    case "state":
      events.onState?.(message.state);
      break;
    case "transcript":
      events.onWords?.(message);
      break;
    case "turn":
      events.onTurn?.(message);
      break;
    case "tool":
      events.onTool?.(message);
      break;
    case "clear":
      events.onClear?.();
      break;
    case "ended":
      events.onEnded?.(message.endedReason);
      break;
  }
}
