/** The webhook attempts of a call, with what the receiver answered; its latest event can be sent again. */

import { getPage, type Schemas, write } from "../../api/client";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { hasRole } from "../../app/session";
import { LoadedView } from "../../components/loaded_view";
import { notify } from "../../components/notices";
import { Time } from "../../components/time";
import { t } from "../../texts";

type Attempt = Schemas["WebhookAttempt"];

export function WebhookAttempts({ path }: { path: string }) {
  const address = `${path}/webhook-deliveries`;
  const attempts = useResource((signal) => getPage<Attempt>(address, { limit: 100 }, signal), [path]);
  const { busy, problem, run } = useSaving();

  async function again(id: string) {
    if (!(await run(() => write("POST", address, { deliveryId: id })))) return;
    notify(t.call.webhooks.queued);
    attempts.reload();
  }

  return (
    <>
      <p class="problem" role="alert">
        {problem}
      </p>
      <LoadedView resource={attempts}>
        {({ data }) =>
          data.length === 0 ? (
            <p class="notice">{t.call.webhooks.none}</p>
          ) : (
            <ol class="attempts">
              {data.map((attempt) => (
                <AttemptRow key={attempt.id} attempt={attempt} busy={busy.value} onAgain={again} />
              ))}
            </ol>
          )
        }
      </LoadedView>
    </>
  );
}

interface RowProps {
  attempt: Attempt;
  busy: boolean;
  onAgain: (id: string) => Promise<void>;
}

function AttemptRow({ attempt, busy, onAgain }: RowProps) {
  const { webhooks } = t.call;
  const answer = attempt.error ?? (attempt.responseStatus === null ? "" : webhooks.status(attempt.responseStatus));
  return (
    <li class="panel">
      <div class="title-bar">
        <span>
          <strong>{attempt.event}</strong> <span class="quiet">{webhooks.attempt(attempt.attempt)}</span>
        </span>
        <span class={`badge badge-${{ pending: "live", succeeded: "good", failed: "bad" }[attempt.status]}`}>
          {webhooks.states[attempt.status]}
        </span>
        <Time iso={attempt.createdAt} />
        {hasRole("owner") && (
          <button type="button" disabled={busy} onClick={() => void onAgain(attempt.deliveryId)}>
            {webhooks.again}
          </button>
        )}
      </div>
      <p class="wrap">
        <bdi>{answer}</bdi>{" "}
        {attempt.durationMs !== null && <span class="quiet">{webhooks.took(attempt.durationMs)}</span>}
      </p>
      {attempt.responseBody && <pre>{attempt.responseBody}</pre>}
    </li>
  );
}
