/** The calls that were refused, with the reason: those of a number, or those to numbers that do not exist. */

import { get, type Schemas } from "../../api/client";
import { eventsArrive, LIST_PATIENCE_MS, useEvents } from "../../api/events";
import { useResource } from "../../api/resource";
import { useAtMostOnce } from "../../app/at_most_once";
import { LoadedView } from "../../components/loaded_view";
import { Table } from "../../components/table";
import { Time } from "../../components/time";
import { t } from "../../texts";

/** Between two refreshes because of events. */
const REFRESH_MS = 2000;

type Refused = Schemas["RefusedCall"];

/** `numberId`: `null`: calls to unknown numbers. */
export function RefusedCalls({ numberId }: { numberId: string | null }) {
  const refused = useResource(
    async (signal) => {
      await eventsArrive(LIST_PATIENCE_MS);
      const all = await get<Refused[]>("/v1/phone-numbers/refused-calls", { phoneNumberId: numberId }, signal);
      return all.filter((each) => each.phoneNumberId === numberId);
    },
    [numberId],
  );
  const refresh = useAtMostOnce(REFRESH_MS, refused.reload);
  useEvents({
    "call.refused": (call) => {
      if (call.phoneNumberId === numberId) refresh();
    },
    resync: refresh,
  });
  const { at, caller, dialled, source, status, reason } = t.phoneNumbers.refused.columns;
  return (
    <LoadedView resource={refused}>
      {(all) =>
        all.length === 0 ? (
          <p class="notice">{t.phoneNumbers.refused.empty}</p>
        ) : (
          <Table label={t.phoneNumbers.tabs.refused} columns={[at, caller, dialled, source, status, reason]}>
            {all.map((each, index) => (
              <tr key={index}>
                <td>
                  <Time iso={each.at} />
                </td>
                <td class="clip">{each.callerNumber}</td>
                <td class="clip">{each.dialledNumber}</td>
                <td>{each.source}</td>
                <td class="figure">{each.statusCode}</td>
                <td>{each.reason}</td>
              </tr>
            ))}
          </Table>
        )
      }
    </LoadedView>
  );
}
