/** The turn-taking settings of an agent, with their bounds. */

import type { Schemas } from "../api/client";

export type TurnSettings = Schemas["ReplaySettings"];
export type TurnSettingName = keyof TurnSettings;

interface Bounds {
  name: TurnSettingName;
  min: number;
  max: number;
  step: number | "any";
}

/** In the order of forms. */
export const TURN_SETTINGS: readonly Bounds[] = [
  { name: "turnEndpointDelay", min: 50, max: 2000, step: 1 },
  { name: "ultravadEotThreshold", min: 0, max: 1, step: "any" },
  { name: "fallbackSilenceMs", min: 0, max: 10_000, step: 1 },
  { name: "speculativeSilenceMs", min: 0, max: 5000, step: 1 },
  { name: "minTurnDuration", min: 0, max: 2000, step: 1 },
  { name: "minInterruptionDuration", min: 0, max: 2000, step: 1 },
  { name: "frameActivationThreshold", min: 0, max: 1, step: "any" },
  { name: "postSpeechCooldown", min: 0, max: 5000, step: 1 },
];

/** An agent's settings that nobody changed. */
export const DEFAULT_TURN_SETTINGS: TurnSettings = {
  turnEndpointDelay: 100,
  ultravadEotThreshold: 0.1,
  fallbackSilenceMs: 3000,
  speculativeSilenceMs: 150,
  minTurnDuration: 50,
  minInterruptionDuration: 100,
  frameActivationThreshold: 0.35,
  postSpeechCooldown: 400,
};

/** An empty field: no value. */
const NONE = "none";

/** The settings as parameters of an agent's address, whose editor begins with them. */
export function turnSettingsQuery(settings: Partial<TurnSettings>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(settings).map(([name, value]) => [name, value === null ? NONE : String(value)]),
  );
}

/** The settings of an address; what is no number is left out. */
export function turnSettingsOf(query: Record<string, string>): Partial<TurnSettings> {
  const given = TURN_SETTINGS.flatMap(({ name }) => {
    const text = query[name];
    if (text === undefined) return [];
    const value = text === NONE ? null : Number(text);
    return Number.isNaN(value) ? [] : [[name, value]];
  });
  return Object.fromEntries(given);
}
