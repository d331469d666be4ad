/** The phone numbers with the state of their trunks, failures first. */

import type { Schemas } from "../../api/client";
import { Table } from "../../components/table";
import { TrunkState } from "../../components/trunk_state";
import { t } from "../../texts";

type PhoneNumber = Schemas["PhoneNumber"];

export function TrunkTable({ numbers }: { numbers: readonly PhoneNumber[] }) {
  const failuresFirst = [...numbers].sort((one, other) => rank(one) - rank(other));
  return (
    <section>
      <h2>{t.live.trunks.title}</h2>
      {numbers.length === 0 ? (
        <p class="notice">{t.live.trunks.empty}</p>
      ) : (
        <Table label={t.live.trunks.title} columns={Object.values(t.live.trunks.columns)}>
          {failuresFirst.map((each) => (
            <tr key={each.id}>
              <td class="clip">{each.number}</td>
              <td class="clip">{each.name}</td>
              <td>
                <TrunkState number={each} />
              </td>
              <td class="wrap">{each.sipStatusDetail}</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

function rank(number: PhoneNumber): number {
  return number.sipStatus === "failed" ? 0 : 1;
}
