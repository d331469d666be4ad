/** How many calls there are and may be, how busy the models are, and what is wrong. */

import type { Schemas } from "../../api/client";
import { t } from "../../texts";
import { Fact } from "../calls/call_facts";

export function CapacityPanel({ capacity }: { capacity: Schemas["Capacity"] }) {
  const { facts } = t.live;
  const { models, warnings, rejectionReason } = capacity;
  return (
    <section aria-label={t.live.capacity}>
      {(rejectionReason !== null || warnings.length > 0) && (
        <div class="notice notice-error warnings" role="alert">
          {rejectionReason !== null && (
            <p>{t.live.rejected(t.live.rejectedBecause[rejectionReason] ?? rejectionReason)}</p>
          )}
          <ul>
            {warnings.map(({ part, message }) => (
              <li key={part}>
                <strong>{t.live.parts[part] ?? part}</strong>: <bdi>{t.live.problems[message] ?? message}</bdi>
              </li>
            ))}
          </ul>
        </div>
      )}
      <dl class="facts">
        <Fact name={facts.calls}>{t.live.ofCalls(capacity.calls, capacity.maxCalls)}</Fact>
        <Fact name={facts.left}>{capacity.callsLeft}</Fact>
        {models !== null && (
          <Fact name={facts.models}>
            <span class={models.slow ? "badge badge-bad" : "badge badge-good"}>
              {models.slow ? t.live.models.slow : t.live.models.inTime}
            </span>{" "}
            <span class="quiet">{t.live.models.wait(models.waitSeconds, models.maxWaitSeconds)}</span>
          </Fact>
        )}
        {models?.capacity != null && <Fact name={facts.modelCapacity}>{t.live.models.calls(models.capacity)}</Fact>}
      </dl>
    </section>
  );
}
