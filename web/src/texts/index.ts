/** The texts of the chosen language. */

import { en, type Texts } from "./en";

/** Invisible characters that reorder what follows them (Unicode's UAX #9, 2). */
const REORDERING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export const t: Texts = withPlainValues(en);

/** Returns texts whose sentences take only values that reorder nothing: a caller may be named anything. */
function withPlainValues<T>(texts: T): T {
  if (typeof texts === "function") {
    const sentence = texts as unknown as (...values: unknown[]) => unknown;
    return ((...values: unknown[]) =>
      sentence(...values.map((each) => (typeof each === "string" ? each.replace(REORDERING, "") : each)))) as T;
  }
  if (typeof texts !== "object" || texts === null || Array.isArray(texts)) return texts;
  return Object.fromEntries(Object.entries(texts).map(([name, each]) => [name, withPlainValues(each)])) as T;
}
