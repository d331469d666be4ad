/** A time: relative, with the absolute one on hover. */

import { absoluteTime, relativeTime } from "../texts/format";

export function Time({ iso }: { iso: string }) {
  return (
    <time dateTime={iso} title={absoluteTime(iso)}>
      {relativeTime(iso)}
    </time>
  );
}
