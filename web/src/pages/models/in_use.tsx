/** The models that calls can have now, and how fast they are on this machine. */

import { getPage, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { LoadedView } from "../../components/loaded_view";
import { Table } from "../../components/table";
import { t } from "../../texts";

type LanguageModel = Schemas["LanguageModel"];
type Recognizer = Schemas["SpeechRecognizer"];

const MOST = 100;

export function ModelsInUse() {
  const models = useResource((signal) => getPage<LanguageModel>("/v1/slm-models", { limit: MOST }, signal), []);
  const recognizers = useResource(
    (signal) => getPage<Recognizer>("/v1/speech-recognizers", { limit: MOST }, signal),
    [],
  );
  const voices = useResource((signal) => getPage<Schemas["Voice"]>("/v1/voices", { limit: 1 }, signal), []);
  return (
    <>
      <h2>{t.models.languageModels}</h2>
      <LoadedView resource={models}>{(page) => <LanguageModels models={page.data} />}</LoadedView>
      <h2 class="next">{t.models.recognizers}</h2>
      <LoadedView resource={recognizers}>{(page) => <Recognizers recognizers={page.data} />}</LoadedView>
      <h2 class="next">{t.models.synthesizers}</h2>
      <LoadedView resource={voices}>
        {(page) => (
          <p>
            {page.pagination.total === 0 ? (
              t.voices.empty
            ) : (
              <a href="/voices">{t.models.voicesLink(page.pagination.total)}</a>
            )}
          </p>
        )}
      </LoadedView>
    </>
  );
}

function LanguageModels({ models }: { models: readonly LanguageModel[] }) {
  if (models.length === 0) return <p class="notice">{t.models.noLanguageModels}</p>;
  const { name, provider, context, reading, writing } = t.models.columns;
  return (
    <Table label={t.models.languageModels} columns={[name, provider, context, reading, writing]}>
      {models.map((model) => (
        <tr key={model.id}>
          <td>
            <Name name={model.name} isDefault={model.isDefault} />
          </td>
          <td>{model.provider}</td>
          <td class="figure">
            {model.contextLength === null ? t.models.noLimit : t.models.context(model.contextLength)}
          </td>
          <td class="figure">{tokens(model.promptTokensPerSecond)}</td>
          <td class="figure">{tokens(model.tokensPerSecond)}</td>
        </tr>
      ))}
    </Table>
  );
}

function Recognizers({ recognizers }: { recognizers: readonly Recognizer[] }) {
  if (recognizers.length === 0) return <p class="notice">{t.models.noRecognizers}</p>;
  const { name, provider, languages, streaming, speed } = t.models.columns;
  return (
    <Table label={t.models.recognizers} columns={[name, provider, languages, streaming, speed]}>
      {recognizers.map((each) => (
        <tr key={each.id}>
          <td>
            <Name name={each.name} isDefault={each.isDefault} />
          </td>
          <td>{each.engine}</td>
          <td>{each.languages.map((tag) => (tag === "*" ? t.models.allLanguages : tag)).join(", ")}</td>
          <td>{each.streaming ? t.yes : t.no}</td>
          <td class="figure">
            {each.realTimeFactor === null ? t.models.notMeasured : t.models.realTime(each.realTimeFactor.toFixed(2))}
          </td>
        </tr>
      ))}
    </Table>
  );
}

function Name({ name, isDefault }: { name: string; isDefault: boolean }) {
  return (
    <>
      {name} {isDefault && <span class="badge badge-good">{t.models.default}</span>}
    </>
  );
}

function tokens(perSecond: number | null): string {
  return perSecond === null ? t.models.notMeasured : t.models.tokens(perSecond.toFixed(1));
}
