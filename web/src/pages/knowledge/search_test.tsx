/** What a question finds in an agent's documents, and why. */

import { useSignal } from "@preact/signals";

import { type Schemas, search } from "../../api/client";
import { useSaving } from "../../api/saving";
import { TextField } from "../../components/fields";
import { t } from "../../texts";

type Result = Schemas["KnowledgeResult"];

export function SearchTest({ agentId }: { agentId: string }) {
  const question = useSignal("");
  const results = useSignal<readonly Result[] | null>(null);
  const { busy, problem, fields, run } = useSaving();

  async function find(event: Event) {
    event.preventDefault();
    await run(async () => {
      results.value = await search<Result>("/v1/knowledge/search", { agentId, query: question.value });
    });
  }

  return (
    <section class="panel next">
      <h2>{t.knowledge.search.title}</h2>
      <form onSubmit={(event) => void find(event)}>
        <TextField
          label={t.knowledge.search.question}
          help={t.knowledge.search.questionHelp}
          problem={fields.value.query}
          required
          maxLength={1000}
          value={question.value}
          onInput={(value) => {
            question.value = value;
          }}
        />
        <p class="problem" role="alert">
          {problem}
        </p>
        <button type="submit" class="primary" disabled={busy.value}>
          {t.knowledge.search.submit}
        </button>
      </form>
      <div aria-live="polite">
        {results.value?.length === 0 && <p class="notice">{t.knowledge.search.nothing}</p>}
        <ol class="results">
          {results.value?.map((result) => (
            <Passage key={`${result.documentId} ${result.position}`} result={result} />
          ))}
        </ol>
      </div>
    </section>
  );
}

function Passage({ result }: { result: Result }) {
  const texts = t.knowledge.search;
  return (
    <li>
      <p>
        <strong>{result.document}</strong>{" "}
        <span class="quiet">
          {texts.position(result.position + 1)} · {texts.score(percent(result.score))} ·{" "}
          {texts.words(percent(result.wordScore), result.words.join(", "))} ·{" "}
          {result.meaningScore === null ? texts.noMeaning : texts.meaning(percent(result.meaningScore))}
        </span>
      </p>
      <p class="passage">{result.content}</p>
    </li>
  );
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}
