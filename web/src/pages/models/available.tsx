/** The models of the lists that are not installed, to be downloaded. */

import { useSignal } from "@preact/signals";

import { DeleteButton } from "../../components/deletion";
import { SelectField, TextField } from "../../components/fields";
import { Table } from "../../components/table";
import { t } from "../../texts";
import { byteSize } from "../../texts/format";
import { StartDownload } from "./download";
import { ModelName, ModelState } from "./installed";
import { hasFiles, type LocalModel } from "./local_models";

export function AvailableModels({ models }: { models: readonly LocalModel[] }) {
  const kind = useSignal("");
  const language = useSignal("");
  const available = models.filter(
    (each) =>
      !hasFiles(each) &&
      (kind.value === "" || each.kind === kind.value) &&
      speaks(each, language.value.trim().toLowerCase()),
  );
  const columns = t.models.columns;
  return (
    <>
      <p class="quiet">{t.models.restart}</p>
      <div class="filters">
        <SelectField
          label={t.models.kind}
          value={kind.value}
          options={[["", t.models.everyKind] as const, ...Object.entries(t.models.kinds)]}
          onInput={(chosen) => {
            kind.value = chosen;
          }}
        />
        <TextField
          label={t.models.language}
          help={t.models.languageHelp}
          value={language.value}
          onInput={(text) => {
            language.value = text;
          }}
        />
      </div>
      {available.length === 0 ? (
        <p class="notice">{t.models.nothingAvailable}</p>
      ) : (
        <Table label={t.models.tabs.available} columns={[columns.name, columns.kind, columns.size, columns.state, ""]}>
          {available.map((model) => (
            <Row key={model.id} model={model} />
          ))}
        </Table>
      )}
    </>
  );
}

function Row({ model }: { model: LocalModel }) {
  return (
    <tr>
      <td>
        <ModelName model={model} />
      </td>
      <td>{t.models.kinds[model.kind]}</td>
      <td class="figure">{model.sizeBytes === null ? "" : byteSize(model.sizeBytes)}</td>
      <td>
        <ModelState model={model} />
        <p class="quiet">{t.models.from(model.hosts.join(", "))}</p>
      </td>
      <td class="model-actions">
        {(model.download === null || model.download.state === "failed") && (
          <div class="actions">
            <StartDownload model={model} />
            {model.stateDetail !== null && (
              <DeleteButton
                path={`/v1/models/${model.id}`}
                name={model.name}
                action={t.models.discard}
                question={t.models.confirmDiscard(model.name)}
                consequence={t.models.confirmDiscardText}
                onDeleted={() => {}}
              />
            )}
          </div>
        )}
      </td>
    </tr>
  );
}

function speaks(model: LocalModel, language: string): boolean {
  const wanted = language.split("-")[0] ?? "";
  return language === "" || model.languages.some((tag) => tag === "*" || tag.toLowerCase().split("-")[0] === wanted);
}
