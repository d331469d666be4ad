/** A time: relative, and as it passes, or absolute, as the user has chosen for the whole page; the other one on hover. */

import { useMinute } from "../app/minute";
import { absoluteTimes } from "../app/time_style";
import { absoluteTime, relativeAndAbsoluteTime, relativeTime } from "../texts/format";

interface Props {
  iso: string;
  /** Show both the relative and the absolute time. */
  both?: boolean;
}

export function Time({ iso, both = false }: Props) {
  const now = useMinute();
  const [relative, absolute] = [relativeTime(iso, now), absoluteTime(iso)];
  return (
    <time dateTime={iso} title={absoluteTimes.value ? relative : absolute}>
      {both ? relativeAndAbsoluteTime(iso, now) : absoluteTimes.value ? absolute : relative}
    </time>
  );
}
