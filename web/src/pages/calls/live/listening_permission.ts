/** Whether live calls may be listened in to. */

import { get, type Schemas } from "../../../api/client";
import { useResource } from "../../../api/resource";

/** Whether the server permits it to editors. True until that is known: it refuses in any case. */
export function useListeningPermitted(): boolean {
  const organization = useResource((signal) => get<Schemas["Organization"]>("/v1/organization", {}, signal), []);
  const loaded = organization.current.value;
  return loaded.state !== "ready" || loaded.value.listening;
}
