/** What agents name by id: voices, language models, sounds, tools and phone numbers. */

import { type ApiError, everything, get, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { t } from "../../texts";

export interface Choices {
  voices: readonly Schemas["Voice"][];
  models: readonly Schemas["LanguageModel"][];
  sounds: readonly Schemas["BackgroundSound"][];
  tools: readonly Schemas["Tool"][];
  numbers: readonly Schemas["PhoneNumber"][];
  /** Why they could not be loaded. */
  failure: ApiError | null;
}

const NONE: Choices = { voices: [], models: [], sounds: [], tools: [], numbers: [], failure: null };

/** Load all of them; none until then. */
export function useChoices(): Choices {
  const loaded = useResource(loadChoices, []).current.value;
  if (loaded.state === "failed") return { ...NONE, failure: loaded.error };
  return loaded.state === "ready" ? loaded.value : NONE;
}

/** The name of what an agent names by id; of null, that the server chooses. */
export function choiceName(choices: readonly { id: string; name: string | null }[], id: string | null): string {
  if (id === null) return t.agents.serverDefault;
  return choices.find((each) => each.id === id)?.name ?? (choices.length === 0 ? "" : t.agents.unknownId(id));
}

async function loadChoices(signal: AbortSignal): Promise<Choices> {
  const [voices, models, sounds, tools, numbers] = await Promise.all([
    everything<Schemas["Voice"]>("/v1/voices", signal),
    everything<Schemas["LanguageModel"]>("/v1/slm-models", signal),
    get<Schemas["BackgroundSound"][]>("/v1/background-sounds", {}, signal),
    everything<Schemas["Tool"]>("/v1/tools", signal),
    everything<Schemas["PhoneNumber"]>("/v1/phone-numbers", signal),
  ]);
  return { voices, models, sounds, tools, numbers, failure: null };
}
