/** What a PBX needs for a number, to copy. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";

import { get, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { CopyButton } from "../../components/copy_button";
import { SelectField } from "../../components/fields";
import { LoadedView } from "../../components/loaded_view";
import { t } from "../../texts";

export function PbxConfiguration({ id }: { id: string }) {
  const pbx = useSignal("asterisk");
  const text = useRef<HTMLPreElement>(null);
  const configuration = useResource(
    (signal) =>
      get<Schemas["PbxConfiguration"]>(`/v1/phone-numbers/${id}/pbx-configuration`, { pbx: pbx.value }, signal),
    [id, pbx.value],
  );
  return (
    <>
      <SelectField
        label={t.phoneNumbers.pbx.choice}
        help={t.phoneNumbers.pbx.help}
        value={pbx.value}
        options={Object.entries(t.phoneNumbers.pbx.names)}
        onInput={(value) => {
          pbx.value = value;
        }}
      />
      <LoadedView resource={configuration}>
        {(found) =>
          found.configuration === null ? (
            <p class="notice">{found.problem}</p>
          ) : (
            <>
              <div class="actions">
                <CopyButton text={found.configuration} name={t.phoneNumbers.pbx.copy} source={text} />
              </div>
              <pre ref={text}>{found.configuration}</pre>
            </>
          )
        }
      </LoadedView>
    </>
  );
}
