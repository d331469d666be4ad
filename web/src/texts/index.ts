/** The texts of the chosen language. */

import { en } from "./en";

/** The texts of a language: the keys of the English ones, sentences that take the same values, and strings. */
type Language<T> = T extends string
  ? string
  : T extends (...values: infer Values) => infer Text
    ? (...values: Values) => Language<Text>
    : { readonly [key in keyof T]: Language<T[key]> };
export type Texts = Language<typeof en>;

/** The first part of their tags (BCP 47), and their texts. */
const LANGUAGES: Readonly<Record<string, Texts>> = { en };

/** Invisible characters that reorder what follows them (Unicode's UAX #9, 2). */
const REORDERING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export const t: Texts = withPlainValues(chosen());

/** The first of the browser's languages that there is; else English. */
function chosen(): Texts {
  const wanted = navigator.languages.map((tag) => LANGUAGES[tag.split("-")[0] ?? ""]);
  return wanted.find((texts) => texts !== undefined) ?? en;
}

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
