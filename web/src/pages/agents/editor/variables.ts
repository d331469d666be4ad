/** The `{{variables}}` of texts, as calls replace them. */

import { t } from "../../../texts";

const PLACEHOLDER = /\{\{\s*([A-Za-z0-9_]+)\s*\}\}/g;

export interface Variables {
  /** Names in the order of their first use. */
  names: readonly string[];
  /** The first text in braces that is no variable, and for which the server refuses the text. */
  invalid: string | null;
}

export function variablesOf(text: string): Variables {
  const names = [...new Set([...text.matchAll(PLACEHOLDER)].map((match) => match[1] ?? ""))];
  const rest = text.replace(PLACEHOLDER, "");
  const opened = rest.indexOf("{{");
  const closed = opened < 0 ? -1 : rest.indexOf("}}", opened + 2);
  return { names, invalid: closed < 0 ? null : rest.slice(opened, Math.min(closed + 2, opened + 60)) };
}

/** The text of a call with these values. A variable without a value is empty. */
export function substitute(text: string, values: Readonly<Record<string, string>>): string {
  return text.replace(PLACEHOLDER, (_, name: string) => (Object.hasOwn(values, name) ? (values[name] ?? "") : ""));
}

/** What the server knows about a variable without the call's own ones; `null`: nothing. */
export function meaningOf(name: string): string | null {
  const { known, sip } = t.agents.variables;
  if (Object.hasOwn(known, name)) return known[name] ?? null;
  return name.startsWith("sip_") ? sip : null;
}
