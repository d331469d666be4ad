/** Times, durations and figures as text. */

import { t } from ".";

const relative = new Intl.RelativeTimeFormat(t.locale, { numeric: "auto" });
const absolute = new Intl.DateTimeFormat(t.locale, { dateStyle: "medium", timeStyle: "medium" });
const day = new Intl.DateTimeFormat(t.locale, { day: "numeric", month: "short" });
const time = new Intl.DateTimeFormat(t.locale, { timeStyle: "short" });
const languages = new Intl.DisplayNames(t.locale, { type: "language" });
const figures = new Intl.NumberFormat(t.locale, { maximumFractionDigits: 2 });
const UNITS: readonly [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
];
const SIZES = ["B", "kB", "MB", "GB", "TB"] as const;

/** An ISO 8601 time as people say it: "3 minutes ago". */
export function relativeTime(iso: string, now = Date.now()): string {
  const seconds = (Date.parse(iso) - now) / 1000;
  for (const [unit, size] of UNITS) {
    if (Math.abs(seconds) >= size) return relative.format(Math.round(seconds / size), unit);
  }
  return relative.format(Math.round(seconds), "second");
}

export function absoluteTime(iso: string): string {
  return absolute.format(new Date(iso));
}

/** A time in ms as its day: "6 Mar". */
export function dayOf(ms: number): string {
  return day.format(ms);
}

/** A time in ms as its hour and minute: "14:00". */
export function timeOf(ms: number): string {
  return time.format(ms);
}

/** "3 minutes ago (29 Nov 2026, 10:00:00)". */
export function relativeAndAbsoluteTime(iso: string, now = Date.now()): string {
  return `${relativeTime(iso, now)} (${absoluteTime(iso)})`;
}

/** A figure with at most two digits after the decimal point. */
export function figure(value: number): string {
  return figures.format(value);
}

/** Seconds as `m:ss`, or `h:mm:ss` from an hour on. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  const tail = `${hours > 0 ? String(minutes).padStart(2, "0") : minutes}:${String(rest).padStart(2, "0")}`;
  return hours > 0 ? `${hours}:${tail}` : tail;
}

/** A language tag with its name: "English (en)"; a tag without a name as it is. */
export function language(tag: string): string {
  try {
    const name = languages.of(tag);
    return name === undefined || name === tag ? tag : `${name} (${tag})`;
  } catch {
    return tag; // no tag in the sense of BCP 47
  }
}

/** A size in bytes: "1.5 MB". Units are powers of 1000. */
export function byteSize(bytes: number): string {
  const power = Math.min(SIZES.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${Number((bytes / 1000 ** power).toFixed(1))} ${SIZES[power]}`;
}
