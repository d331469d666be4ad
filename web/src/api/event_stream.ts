/** Server-sent events as they come out of a stream (WHATWG HTML 9.2), as far as the server writes them. */

export interface ServerEvent {
  /** "" if the block has none. */
  id: string;
  /** "" for a block that only tells an id. */
  name: string;
  data: string;
}

/** Yields each event of a stream, until it ends. */
export async function* serverEvents(stream: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const event = eventOf(block);
      if (event.id !== "" || event.name !== "") yield event;
    }
  }
}

function eventOf(block: string): ServerEvent {
  const event: ServerEvent = { id: "", name: "", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const value = line.slice(colon + 1).trimStart();
    if (line.startsWith("id:")) event.id = value;
    else if (line.startsWith("event:")) event.name = value;
    else if (line.startsWith("data:")) event.data += value;
  }
  return event;
}
