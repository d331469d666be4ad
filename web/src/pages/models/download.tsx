/** A download of a model: its start, its progress and its end. */

import { type Schemas, write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { t } from "../../texts";
import { byteSize, duration } from "../../texts/format";
import type { LocalModel } from "./local_models";

type Download = Schemas["ModelDownload"];

/** Begins a download, goes on with one that was stopped, or gets damaged files again. */
export function StartDownload({ model }: { model: LocalModel }) {
  const { busy, problem, run } = useSaving();
  const verb =
    model.state === "not_installed" ? (model.stateDetail ? t.models.goOn : t.models.download) : t.models.repair;
  return (
    <>
      <button
        type="button"
        disabled={busy.value}
        aria-label={t.models.downloadOf(verb, model.name)}
        onClick={() => void run(() => write("POST", `/v1/models/${model.id}/download`))}
      >
        {verb}
      </button>
      <p class="problem" role="alert">
        {problem.value}
      </p>
    </>
  );
}

export function DownloadProgress({ model, download }: { model: LocalModel; download: Download }) {
  const { busy, problem, run } = useSaving();
  const failed = download.state === "failed";
  return (
    <div class="download">
      {!failed && (
        <progress
          aria-label={t.models.progressOf(model.name)}
          {...(download.totalBytes === null ? {} : { max: download.totalBytes, value: download.receivedBytes })}
        />
      )}
      <p class={failed ? "problem" : "quiet"}>
        {[t.models.downloads[download.state], ...figures(download)].join(" · ")}
      </p>
      {download.problem !== null && <p class="problem">{download.problem}</p>}
      <button
        type="button"
        disabled={busy.value}
        aria-label={failed ? t.models.forgetOf(model.name) : t.models.cancelOf(model.name)}
        onClick={() => void run(() => write("DELETE", `/v1/models/${model.id}/download`))}
      >
        {failed ? t.models.forget : t.models.cancel}
      </button>
      <p class="problem" role="alert">
        {problem.value}
      </p>
    </div>
  );
}

/** How much there is, how fast it comes, and how long it takes. */
function figures({ state, receivedBytes, totalBytes, bytesPerSecond }: Download): string[] {
  if (state === "failed" || state === "checking") return [];
  const received = byteSize(receivedBytes);
  const size = totalBytes === null ? received : t.models.ofTotal(received, byteSize(totalBytes));
  if (!bytesPerSecond) return [size];
  const speed = t.models.perSecond(byteSize(bytesPerSecond));
  if (totalBytes === null) return [size, speed];
  const seconds = (totalBytes - receivedBytes) / bytesPerSecond;
  return [size, speed, t.models.timeLeft(duration(seconds))];
}
