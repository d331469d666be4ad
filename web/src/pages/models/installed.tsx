/** The models whose files are on the server, and the import of others. */

import { write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { DeleteButton } from "../../components/deletion";
import { Table } from "../../components/table";
import { t } from "../../texts";
import { byteSize } from "../../texts/format";
import { DownloadProgress, StartDownload } from "./download";
import { hasFiles, type LocalModel } from "./local_models";
import { ModelImport } from "./model_import";

const SIGNIFICANT = 3;

export function InstalledModels({ models, onImported }: { models: readonly LocalModel[]; onImported: () => void }) {
  const installed = models.filter(hasFiles);
  const { kind, name, size, speed, state } = t.models.columns;
  return (
    <>
      <p class="quiet">{t.models.restart}</p>
      {installed.every((each) => each.source === "built-in") && <p class="notice">{t.models.nothingInstalled}</p>}
      <Table label={t.models.tabs.installed} columns={[name, kind, state, size, speed, ""]}>
        {installed.map((model) => (
          <tr key={model.id}>
            <td>
              <ModelName model={model} />
            </td>
            <td>{t.models.kinds[model.kind]}</td>
            <td>
              <ModelState model={model} />
            </td>
            <td class="figure">{model.sizeBytes === null ? "" : byteSize(model.sizeBytes)}</td>
            <td>{speedOf(model)}</td>
            <td class="model-actions">{model.source !== "built-in" && <Actions model={model} />}</td>
          </tr>
        ))}
      </Table>
      <p class="quiet">{t.models.checkHelp}</p>
      <ModelImport onImported={onImported} />
    </>
  );
}

export function ModelName({ model }: { model: LocalModel }) {
  const origin = { "built-in": t.models.builtIn, own: t.models.own, listed: model.licence ?? "" }[model.source];
  return (
    <>
      <div class="model-name">{model.name}</div>
      <div class="quiet">{[origin, t.models.languages(model.languages)].filter((each) => each !== "").join(" · ")}</div>
    </>
  );
}

/** The state in words and, where something is wrong, what to do. */
export function ModelState({ model }: { model: LocalModel }) {
  const tone = model.state === "ready" ? "good" : model.state === "not_installed" ? "idle" : "bad";
  return (
    <>
      <div class="badges">
        <span class={`badge badge-${tone}`}>{t.models.states[model.state]}</span>
        {model.state === "ready" && (
          <span class="badge badge-idle">{model.loaded ? t.models.loaded : t.models.nextStart}</span>
        )}
        {model.checking && <span class="badge badge-live">{t.models.checking}</span>}
        {model.check === "passed" && <span class="badge badge-good">{t.models.checkPassed}</span>}
        {model.check === "failed" && <span class="badge badge-bad">{t.models.checkFailed}</span>}
      </div>
      {model.state === "missing_package" && model.stateDetail !== null ? (
        <p class="problem">{t.models.missingPackage(model.stateDetail)}</p>
      ) : (
        model.stateDetail !== null && <p class="quiet">{model.stateDetail}</p>
      )}
      {model.missingEngine !== null && <p class="quiet">{t.models.missingEngine(model.missingEngine)}</p>}
      {model.problems.map((each) => (
        <p key={each} class="problem">
          {each}
        </p>
      ))}
      {model.download !== null && <DownloadProgress model={model} download={model.download} />}
    </>
  );
}

function Actions({ model }: { model: LocalModel }) {
  const { busy, problem, run } = useSaving();
  const works = model.checking || (model.download !== null && model.download.state !== "failed");
  const name = model.name;
  return (
    <>
      <div class="actions">
        {(model.state === "damaged" || (model.check === "failed" && model.source === "listed")) && !works && (
          <StartDownload model={model} />
        )}
        {model.state !== "damaged" && (
          <button
            type="button"
            disabled={busy.value || works}
            aria-label={t.models.checkOf(name)}
            onClick={() => void run(() => write("POST", `/v1/models/${model.id}/check`))}
          >
            {t.models.check}
          </button>
        )}
        <DeleteButton
          path={`/v1/models/${model.id}`}
          name={name}
          question={t.models.confirmDelete(name)}
          consequence={t.models.confirmDeleteText(byteSize(model.sizeBytes ?? 0))}
          disabled={model.inUse !== null || works}
          onDeleted={() => {}}
        />
      </div>
      <p class="problem" role="alert">
        {problem.value}
      </p>
      {model.inUse !== null && <p class="quiet reason">{model.inUse}</p>}
    </>
  );
}

function speedOf({ tokensPerSecond, realTimeFactor }: LocalModel): string {
  if (tokensPerSecond !== null) return t.models.tokens(Number(tokensPerSecond.toPrecision(SIGNIFICANT)).toString());
  if (realTimeFactor !== null) return t.models.realTime(Number(realTimeFactor.toPrecision(SIGNIFICANT)).toString());
  return t.models.notMeasured;
}
