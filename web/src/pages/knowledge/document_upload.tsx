/** Takes documents by drag and drop or by a choice of files, and uploads one after another. */

import { useSignal } from "@preact/signals";
import { useId } from "preact/hooks";

import { ApiError, upload } from "../../api/client";
import { t } from "../../texts";

const ACCEPTED = ".txt,.md,.html,.htm,.csv,.json,.pdf,.docx";

interface Progress {
  name: string;
  share: number;
}

export function DocumentUpload({ agentId, onUploaded }: { agentId: string; onUploaded: () => void }) {
  const id = useId();
  const over = useSignal(false);
  const progress = useSignal<Progress | null>(null);
  const problems = useSignal<readonly string[]>([]);

  async function uploadAll(files: readonly File[]) {
    problems.value = [];
    for (const file of files) {
      progress.value = { name: file.name, share: 0 };
      const form = new FormData();
      form.append("agentId", agentId);
      form.append("name", file.name);
      form.append("file", file);
      try {
        await upload("/v1/knowledge", form, (share) => {
          progress.value = { name: file.name, share };
        });
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        const problem = error.status === 0 ? t.states.unreachable : (error.details[0]?.message ?? error.message);
        problems.value = [...problems.value, t.knowledge.failedUpload(file.name, problem)];
      }
      onUploaded();
    }
    progress.value = null;
  }

  return (
    <section
      class={`drop-zone ${over.value ? "drop-zone-over" : ""}`}
      aria-label={t.knowledge.drop}
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
        void uploadAll([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      <p>{t.knowledge.drop}</p>
      <p class="quiet">{t.knowledge.formats}</p>
      <label for={id}>{t.knowledge.choose}</label>{" "}
      <input
        id={id}
        type="file"
        multiple
        accept={ACCEPTED}
        disabled={progress.value !== null}
        onChange={(event) => {
          const chosen = [...(event.currentTarget.files ?? [])];
          event.currentTarget.value = "";
          void uploadAll(chosen);
        }}
      />
      {progress.value !== null && (
        <p>
          <progress aria-label={t.knowledge.uploading(progress.value.name)} value={progress.value.share} />{" "}
          {t.knowledge.uploading(progress.value.name)}
        </p>
      )}
      <div role="alert">
        {problems.value.map((problem) => (
          <p key={problem} class="problem">
            {problem}
          </p>
        ))}
      </div>
    </section>
  );
}
