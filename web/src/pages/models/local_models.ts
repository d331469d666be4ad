/** The models of the server's machine, kept up to date by the stream of their events. */

import { useEffect } from "preact/hooks";

import { ApiError, get, openStream, type Schemas } from "../../api/client";
import { serverEvents } from "../../api/event_stream";
import { type Resource, useResource } from "../../api/resource";
import { notify } from "../../components/notices";
import { t } from "../../texts";

export type LocalModel = Schemas["LocalModel"];

const RETRY_MS = 2000;

export function useLocalModels(): Resource<LocalModel[]> {
  const resource = useResource((signal) => get<LocalModel[]>("/v1/models", {}, signal), []);
  const { current } = resource;

  function change(id: string, changed: LocalModel | null) {
    const loaded = current.value;
    if (loaded.state !== "ready") return;
    const models = loaded.value;
    const others = models.filter((each) => each.id !== id);
    const before = models.find((each) => each.id === id);
    if (before?.download && changed?.state === "ready" && changed.download === null)
      notify(t.models.installedNow(changed.name));
    if (changed === null) current.value = { ...loaded, value: others };
    else if (others.length === models.length) current.value = { ...loaded, value: [changed, ...models] };
    else current.value = { ...loaded, value: models.map((each) => (each.id === id ? changed : each)) };
  }

  useEffect(() => {
    const aborter = new AbortController();
    void follow(aborter.signal, resource.reload, change);
    return () => aborter.abort();
  }, []);
  return resource;
}

/** What is left to show of a model: files that are here, or are on their way. */
export function hasFiles(model: LocalModel): boolean {
  return model.state !== "not_installed" || model.source !== "listed";
}

/** Tell each change until `signal` aborts; after a break, again. `onOpen`: changes before it may have been missed. */
async function follow(
  signal: AbortSignal,
  onOpen: () => void,
  onChange: (id: string, model: LocalModel | null) => void,
): Promise<void> {
  while (!signal.aborted) {
    try {
      const stream = await openStream("/v1/models/events", { Accept: "text/event-stream" }, signal);
      onOpen();
      for await (const event of serverEvents(stream)) {
        if (event.name === "model.updated") {
          const model = JSON.parse(event.data) as LocalModel;
          onChange(model.id, model);
        } else if (event.name === "model.deleted") {
          onChange((JSON.parse(event.data) as Schemas["Deleted"]).id, null);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError) && !(error instanceof TypeError) && !(error instanceof DOMException))
        throw error;
      if (error instanceof ApiError && (error.status === 401 || error.status === 403)) return;
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
