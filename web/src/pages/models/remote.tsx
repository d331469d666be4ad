/** Models on other machines: where they are, how the last request went, a test request, and the form that adds one. */

import { useSignal } from "@preact/signals";

import { get, type Schemas, write } from "../../api/client";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { DeleteButton } from "../../components/deletion";
import { LoadedView } from "../../components/loaded_view";
import { Table } from "../../components/table";
import { Time } from "../../components/time";
import { t } from "../../texts";
import { NewRemoteModel } from "./remote_form";

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
                <Row key={`${model.id} ${model.createdAt}`} model={model} onChanged={models.reload} />
              ))}
            </Table>
          )
        }
      </LoadedView>
      <NewRemoteModel onAdded={models.reload} />
    </>
  );
}

function Row({ model, onChanged }: { model: RemoteModel; onChanged: () => void }) {
  return (
    <tr>
      <td>
        <div class="model-name">{model.name}</div>
        <div class="quiet">{model.model}</div>
      </td>
      <td>
        <div>{t.models.kinds[model.kind]}</div>
        <span class={`badge badge-${model.loaded ? "good" : "idle"}`}>
          {model.loaded ? t.models.loaded : t.models.nextStart}
        </span>
      </td>
      <td>
        <div class="model-name">{model.url}</div>
        {model.hasKey && <div class="quiet">{t.models.hasKey}</div>}
        {model.warnings.map((each) => (
          <p key={each} class="problem reason">
            {each}
          </p>
        ))}
      </td>
      <td>
        <LastRequest request={model.lastRequest} />
      </td>
      <td>
        <Actions model={model} onChanged={onChanged} />
      </td>
    </tr>
  );
}

function Actions({ model, onChanged }: { model: RemoteModel; onChanged: () => void }) {
  const answer = useSignal<Answer | null>(null);
  const { busy, problem, run } = useSaving();
  const { confirmRemoteDelete, confirmRemoteDeleteAgents, confirmRemoteDeleteText, remoteDeleted } = t.models;
  const { agents, name } = model;

  async function test() {
    answer.value = null;
    await run(async () => {
      answer.value = await write<Answer>("POST", `/v1/remote-models/${model.id}/test`);
    });
    onChanged();
  }

  const consequences = [confirmRemoteDeleteText(model.model, model.url)];
  if (agents > 0) consequences.push(confirmRemoteDeleteAgents(agents));
  return (
    <>
      <div class="actions">
        <button type="button" disabled={busy.value} aria-label={t.models.testOf(name)} onClick={() => void test()}>
          {busy.value ? t.models.testing : t.models.test}
        </button>
        <DeleteButton
          path={`/v1/remote-models/${model.id}`}
          name={name}
          question={confirmRemoteDelete(name)}
          consequence={consequences.join(" ")}
          done={remoteDeleted(name)}
          disabled={model.inUse !== null}
          onDeleted={onChanged}
        />
      </div>
      <p class="reason" role="status">
        {answer.value?.answer}
      </p>
      <p class="problem reason" role="alert">
        {answer.value?.problem ?? problem.value}
      </p>
      {model.inUse !== null && <p class="quiet reason">{model.inUse}</p>}
    </>
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
      {failed && <p class="problem reason">{request.problem}</p>}
    </>
  );
}
