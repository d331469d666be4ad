/** Models on other machines: where they are, how the last request went, and a test request. */

import { useSignal } from "@preact/signals";

import { get, type Schemas, write } from "../../api/client";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { LoadedView } from "../../components/loaded_view";
import { Table } from "../../components/table";
import { Time } from "../../components/time";
import { t } from "../../texts";

type RemoteModel = Schemas["RemoteModel"];
type Answer = Schemas["RemoteModelTest"];

export function RemoteModels() {
  const models = useResource((signal) => get<RemoteModel[]>("/v1/remote-models", {}, signal), []);
  const { kind, lastRequest, name, server } = t.models.columns;
  return (
    <>
      <p class="quiet">{t.models.remoteHelp}</p>
      <LoadedView resource={models}>
        {(found) =>
          found.length === 0 ? (
            <p class="notice">{t.models.noRemote}</p>
          ) : (
            <Table label={t.models.tabs.remote} columns={[name, kind, server, lastRequest, ""]}>
              {found.map((model) => (
                <Row key={model.id} model={model} onTested={models.reload} />
              ))}
            </Table>
          )
        }
      </LoadedView>
    </>
  );
}

function Row({ model, onTested }: { model: RemoteModel; onTested: () => void }) {
  const answer = useSignal<Answer | null>(null);
  const { busy, problem, run } = useSaving();

  async function test() {
    answer.value = null;
    await run(async () => {
      answer.value = await write<Answer>("POST", `/v1/remote-models/${model.id}/test`);
    });
    onTested();
  }

  return (
    <tr>
      <td>
        <div class="model-name">{model.name}</div>
        <div class="quiet">{model.model}</div>
      </td>
      <td>{t.models.kinds[model.kind]}</td>
      <td>
        <div class="model-name">{model.url}</div>
        {model.hasKey && <div class="quiet">{t.models.hasKey}</div>}
      </td>
      <td>
        <LastRequest request={model.lastRequest} />
      </td>
      <td>
        <button
          type="button"
          disabled={busy.value}
          aria-label={t.models.testOf(model.name)}
          onClick={() => void test()}
        >
          {busy.value ? t.models.testing : t.models.test}
        </button>
        <p role="status">{answer.value?.answer}</p>
        <p class="problem" role="alert">
          {answer.value?.problem ?? problem.value}
        </p>
      </td>
    </tr>
  );
}

function LastRequest({ request }: { request: RemoteModel["lastRequest"] }) {
  if (request === null) return <span class="quiet">{t.models.noRequest}</span>;
  const failed = request.problem !== null;
  return (
    <>
      <span class={`badge badge-${failed ? "bad" : "good"}`}>
        {failed ? t.models.failedRequest : t.models.succeeded}
      </span>{" "}
      <Time iso={request.at} />
      {failed && <p class="problem">{request.problem}</p>}
    </>
  );
}
