/** The API keys of the organization: a list, and a new key, which is shown once. */

import { useSignal } from "@preact/signals";

import { get, type Schemas, write } from "../../api/client";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { hasRole } from "../../app/session";
import { DeleteButton } from "../../components/deletion";
import { NumberField, TextField } from "../../components/fields";
import { LoadedView } from "../../components/loaded_view";
import { ShownOnce } from "../../components/shown_once";
import { Table } from "../../components/table";
import { Time } from "../../components/time";
import { t } from "../../texts";

type ApiKey = Schemas["ApiKey"];
type NewApiKey = Schemas["NewApiKey"];

const PATH = "/v1/api-keys";
const texts = t.settings.keys;

export function ApiKeys() {
  const keys = useResource((signal) => get<ApiKey[]>(PATH, {}, signal), []);
  const created = useSignal<NewApiKey | null>(null);
  const mayChange = hasRole("owner");
  const { name, prefix, lastUse, rate, created: since } = texts.columns;
  return (
    <>
      <p class="quiet">{texts.introduction}</p>
      {created.value !== null && (
        <ShownOnce
          key={created.value.id}
          title={texts.created(created.value.name ?? created.value.prefix)}
          explanation={texts.once}
          secret={created.value.key}
          copy={texts.copy}
          onDone={() => {
            created.value = null;
          }}
        />
      )}
      <LoadedView resource={keys}>
        {(all) =>
          all.length === 0 ? (
            <p class="notice">{texts.empty}</p>
          ) : (
            <Table label={t.settings.tabs.keys} columns={[name, prefix, lastUse, rate, since, ""]}>
              {all.map((key) => (
                <tr key={key.id}>
                  <td class="clip">{key.name ?? <span class="quiet">{texts.unnamed}</span>}</td>
                  <td>
                    <code>{key.prefix}</code>
                  </td>
                  <td>{key.lastUsedAt === null ? texts.never : <Time iso={key.lastUsedAt} />}</td>
                  <td class="figure">{key.requestsPerMinute ?? texts.serverRate}</td>
                  <td>
                    <Time iso={key.createdAt} />
                  </td>
                  <td>
                    {mayChange && (
                      <DeleteButton
                        path={`${PATH}/${key.id}`}
                        name={key.name ?? key.prefix}
                        action={texts.revoke}
                        done={texts.revoked(key.name ?? key.prefix)}
                        question={texts.confirmRevoke(key.name ?? texts.unnamed, key.prefix)}
                        consequence={texts.confirmRevokeText}
                        onDeleted={() => {
                          if (created.value?.id === key.id) created.value = null;
                          keys.reload();
                        }}
                      />
                    )}
                  </td>
                </tr>
              ))}
            </Table>
          )
        }
      </LoadedView>
      {mayChange ? (
        <KeyForm
          onCreated={(key) => {
            created.value = key;
            keys.reload();
          }}
        />
      ) : (
        <p class="quiet">{texts.ownersOnly}</p>
      )}
    </>
  );
}

function KeyForm({ onCreated }: { onCreated: (key: NewApiKey) => void }) {
  const name = useSignal("");
  const rate = useSignal<number | null>(null);
  const { busy, problem, fields, run } = useSaving();

  async function create(event: Event) {
    event.preventDefault();
    const body = { name: name.value, requestsPerMinute: rate.value };
    await run(async () => {
      onCreated(await write<NewApiKey>("POST", PATH, body));
      name.value = "";
      rate.value = null;
    });
  }

  return (
    <form class="panel next" onSubmit={(event) => void create(event)}>
      <h2>{texts.create}</h2>
      <TextField
        label={texts.name}
        help={texts.nameHelp}
        problem={fields.value.name}
        maxLength={255}
        required
        value={name.value}
        onInput={(value) => {
          name.value = value;
        }}
      />
      <NumberField
        label={texts.rate}
        help={texts.rateHelp}
        problem={fields.value.requestsPerMinute}
        value={rate.value}
        onInput={(value) => {
          rate.value = value;
        }}
      />
      <p class="problem" role="alert">
        {problem}
      </p>
      <div class="actions">
        <button type="submit" class="primary" disabled={busy.value}>
          {texts.submit}
        </button>
      </div>
    </form>
  );
}
