/** The addresses that no number has and that sent SIP messages: often a PBX that calls from another address. */

import { get, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { LoadedView } from "../../components/loaded_view";
import { Table } from "../../components/table";
import { Time } from "../../components/time";
import { t } from "../../texts";

type Source = Schemas["UnknownSource"];

export function UnknownSources() {
  const sources = useResource((signal) => get<Source[]>("/v1/phone-numbers/unknown-sources", {}, signal), []);
  const texts = t.phoneNumbers.unknownSources;
  const { address, messages, last } = texts.columns;
  return (
    <>
      <h2 class="next">{texts.title}</h2>
      <p class="quiet">{texts.help}</p>
      <LoadedView resource={sources}>
        {(all) =>
          all.length === 0 ? (
            <p class="notice">{texts.empty}</p>
          ) : (
            <Table label={texts.title} columns={[address, messages, last]}>
              {all.map((each) => (
                <tr key={each.address}>
                  <td>{each.address}</td>
                  <td class="figure">{each.messages}</td>
                  <td>
                    <Time iso={each.lastAt} />
                  </td>
                </tr>
              ))}
            </Table>
          )
        }
      </LoadedView>
    </>
  );
}
