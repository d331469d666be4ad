/** What redaction does to a stored text. */

/** What the server writes in place of a number or a credential. */
const MARK = /(\[(?:card|number|hidden)\])/;

/** A text in parts: what was kept, and the marks, in turn; the first and the last part are kept text. */
export function redactedParts(text: string): string[] {
  return text.split(MARK);
}

/** Whether a stored text may be what redaction has made of another one: the same but for the marks. */
export function mayBeRedacted(stored: string, original: string): boolean {
  const kept = redactedParts(stored).filter((_, index) => index % 2 === 0);
  const [first = "", ...others] = kept;
  const last = others.pop();
  if (last === undefined) return stored === original;
  if (!original.startsWith(first)) return false;
  let at = first.length;
  for (const part of others) {
    const found = original.indexOf(part, at);
    if (found === -1) return false;
    at = found + part.length;
  }
  return original.endsWith(last) && original.length - last.length >= at;
}
