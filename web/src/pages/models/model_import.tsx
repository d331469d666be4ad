/** Imports models from files of this device, by drag and drop or by choice, and from the server's folder for them. */

import { useSignal } from "@preact/signals";
import { useId } from "preact/hooks";

import { ApiError, get, queryString, type Schemas, upload, write } from "../../api/client";
import { useResource } from "../../api/resource";
import { LoadedView } from "../../components/loaded_view";
import { t } from "../../texts";
import { byteSize } from "../../texts/format";

type Import = Schemas["ModelImport"];

interface Progress {
  name: string;
  share: number;
  stop: AbortController | null;
}

export function ModelImport({ onImported }: { onImported: () => void }) {
  const id = useId();
  const over = useSignal(false);
  const progress = useSignal<Progress | null>(null);
  const results = useSignal<readonly string[]>([]);
  const problems = useSignal<readonly string[]>([]);

  async function importOne(name: string, request: () => Promise<Import>) {
    try {
      results.value = [...results.value, ...sentences(await request())];
    } catch (error) {
      problems.value = [...problems.value, t.models.failedImport(name, explanation(error))];
    }
    onImported();
  }

  async function uploadAll(files: readonly File[]) {
    results.value = problems.value = [];
    for (const file of files) {
      const stop = new AbortController();
      progress.value = { name: file.name, share: 0, stop };
      const path = `/v1/models/import${queryString({ filename: file.name })}`;
      await importOne(file.name, () =>
        upload<Import>(
          path,
          file,
          (share) => {
            progress.value = { name: file.name, share, stop };
          },
          stop.signal,
        ),
      );
      if (stop.signal.aborted) break;
    }
    progress.value = null;
  }

  async function importFromFolder(file: string) {
    results.value = problems.value = [];
    progress.value = { name: file, share: 1, stop: null };
    await importOne(file, () => write<Import>("POST", "/v1/models/import-from-folder", { file }));
    progress.value = null;
  }

  const busy = progress.value !== null;
  return (
    <>
      <h2 class="next">{t.models.importTitle}</h2>
      <section
        class={`drop-zone ${over.value ? "drop-zone-over" : ""}`}
        aria-label={t.models.drop}
        onDragOver={(event) => {
          event.preventDefault();
          over.value = true;
        }}
        onDragLeave={() => {
          over.value = false;
        }}
        onDrop={(event) => {
          event.preventDefault();
          over.value = false;
          if (!busy) void uploadAll([...(event.dataTransfer?.files ?? [])]);
        }}
      >
        <p>{t.models.drop}</p>
        <p class="quiet">{t.models.formats}</p>
        <label for={id}>{t.models.choose}</label>{" "}
        <input
          id={id}
          type="file"
          multiple
          disabled={busy}
          onChange={(event) => {
            const chosen = [...(event.currentTarget.files ?? [])];
            event.currentTarget.value = "";
            void uploadAll(chosen);
          }}
        />
        {progress.value !== null && <UploadProgress {...progress.value} />}
        <div role="status">
          {results.value.map((each) => (
            <p key={each}>{each}</p>
          ))}
        </div>
        <div role="alert">
          {problems.value.map((problem) => (
            <p key={problem} class="problem">
              {problem}
            </p>
          ))}
        </div>
      </section>
      <ImportFolder busy={busy} onImport={(file) => void importFromFolder(file)} />
    </>
  );
}

function UploadProgress({ name, share, stop }: Progress) {
  const words = share < 1 ? t.models.uploading(name) : t.models.importing(name);
  return (
    <div class="download">
      <progress aria-label={words} {...(share < 1 ? { value: share } : {})} />
      <p>{words}</p>
      {stop !== null && share < 1 && (
        <button type="button" onClick={() => stop.abort()}>
          {t.models.stopUpload}
        </button>
      )}
    </div>
  );
}

function ImportFolder({ busy, onImport }: { busy: boolean; onImport: (file: string) => void }) {
  const files = useResource(
    (signal) => get<Schemas["ImportableFile"][]>("/v1/models/importable-files", {}, signal),
    [],
  );
  return (
    <>
      <h3>{t.models.folder}</h3>
      <p class="quiet">{t.models.folderHelp}</p>
      <LoadedView resource={files}>
        {(found) =>
          found.length === 0 ? (
            <p class="notice">{t.models.folderEmpty}</p>
          ) : (
            <ul class="import-folder">
              {found.map(({ file, sizeBytes }) => (
                <li key={file}>
                  <span class="model-name">{file}</span> <span class="quiet">{byteSize(sizeBytes)}</span>{" "}
                  <button
                    type="button"
                    disabled={busy}
                    aria-label={t.models.importOf(file)}
                    onClick={() => onImport(file)}
                  >
                    {t.models.importFile}
                  </button>
                </li>
              ))}
            </ul>
          )
        }
      </LoadedView>
    </>
  );
}

function sentences({ installed, incomplete, leftOut }: Import): string[] {
  return [
    ...(installed.length === 0 ? [] : [t.models.imported(installed.join(", "))]),
    ...incomplete.map(({ name, missingFiles }) => t.models.incomplete(name, missingFiles.join(", "))),
    ...leftOut.map(({ name, reason }) => t.models.leftOut(name, reason)),
  ];
}

function explanation(error: unknown): string {
  if (error instanceof DOMException) return t.models.stopped;
  if (!(error instanceof ApiError)) throw error;
  return error.status === 0 ? t.states.unreachable : (error.details[0]?.message ?? error.message);
}
