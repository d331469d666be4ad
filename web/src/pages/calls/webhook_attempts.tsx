/** The webhook attempts of a call. */

import { getPage, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { LoadedView } from "../../components/loaded_view";
import { Time } from "../../components/time";
import { t } from "../../texts";

export function WebhookAttempts({ path }: { path: string }) {
  const attempts = useResource(
    (signal) => getPage<Schemas["WebhookAttempt"]>(`${path}/webhook-deliveries`, { limit: 100 }, signal),
    [path],
  );
  return (
    <LoadedView resource={attempts}>
      {({ data }) =>
        data.length === 0 ? (
          <p class="notice">{t.call.webhooks.none}</p>
        ) : (
          <div class="scroll">
            <table>
              <thead>
                <tr>
                  {Object.values(t.call.webhooks.columns).map((name) => (
                    <th key={name} scope="col">
                      {name}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {data.map((attempt) => (
                  <tr key={attempt.id}>
                    <td>
                      <Time iso={attempt.createdAt} />
                    </td>
                    <td>{attempt.event}</td>
                    <td class="figure">{attempt.attempt}</td>
                    <td>{attempt.status}</td>
                    <td class="clip">{attempt.error ?? attempt.responseStatus}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )
      }
    </LoadedView>
  );
}
