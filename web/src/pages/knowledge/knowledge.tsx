/** The documents of an agent, and what a question finds in them. */

import { useLocation } from "preact-iso";

import { everything, getPage, queryString, type Schemas } from "../../api/client";
import { eventsArrive, useEvents } from "../../api/events";
import { useResource } from "../../api/resource";
import { useAtMostOnce } from "../../app/at_most_once";
import { hasRole } from "../../app/session";
import { useTitle } from "../../app/title";
import { DeleteButton } from "../../components/deletion";
import { SelectField } from "../../components/fields";
import { LoadedView } from "../../components/loaded_view";
import { Paging } from "../../components/paging";
import { Table } from "../../components/table";
import { Time } from "../../components/time";
import { t } from "../../texts";
import { DocumentUpload } from "./document_upload";
import { SearchTest } from "./search_test";

type Agent = Schemas["Agent"];
type Document = Schemas["KnowledgeDocument"];

const PAGE_SIZE = 50;
/** Between two refreshes because of events. */
const REFRESH_MS = 2000;
const TONES = { pending: "idle", processing: "live", ready: "good", failed: "bad" } as const;

export default function KnowledgePage() {
  useTitle(t.knowledge.title);
  const { query, route } = useLocation();
  const agents = useResource((signal) => everything<Agent>("/v1/agents", signal), []);
  return (
    <>
      <h1>{t.knowledge.title}</h1>
      <LoadedView resource={agents}>
        {(all) => {
          if (all.length === 0) return <p class="notice">{t.knowledge.noAgents}</p>;
          const agent = query.agentId ? all.find((each) => each.id === query.agentId) : all[0];
          const choices = all.map((each) => [each.id, each.name] as const);
          return (
            <>
              <SelectField
                label={t.knowledge.agent}
                help={t.knowledge.agentHelp}
                value={agent?.id ?? ""}
                options={agent === undefined ? [["", t.knowledge.chooseAgent], ...choices] : choices}
                onInput={(id) => route(`/knowledge${queryString({ agentId: id })}`)}
              />
              {agent === undefined ? (
                <p class="notice">{t.knowledge.unknownAgent}</p>
              ) : (
                <>
                  <Documents key={agent.id} agent={agent} />
                  <SearchTest key={`search ${agent.id}`} agentId={agent.id} />
                </>
              )}
            </>
          );
        }}
      </LoadedView>
    </>
  );
}

function Documents({ agent }: { agent: Agent }) {
  const { query, route } = useLocation();
  const offset = Number.parseInt(query.offset ?? "0", 10) || 0;
  const documents = useResource(
    async (signal) => {
      await eventsArrive();
      return getPage<Document>("/v1/knowledge", { agentId: agent.id, limit: PAGE_SIZE, offset }, signal);
    },
    [agent.id, offset],
  );
  const refresh = useAtMostOnce(REFRESH_MS, documents.reload);
  useEvents({
    "document.updated": (changed) => {
      const shown = documents.current.peek();
      if (shown.state !== "ready") return;
      const isListed = shown.value.data.some((each) => each.id === changed.id);
      if ("deleted" in changed) {
        if (isListed) refresh();
      } else if (isListed) {
        const data = shown.value.data.map((each) => (each.id === changed.id ? changed : each));
        documents.current.value = { ...shown, value: { ...shown.value, data } };
      } else if (changed.agentId === agent.id) {
        refresh();
      }
    },
    resync: documents.reload,
  });
  return (
    <>
      {!hasRole("editor") ? (
        <p class="quiet">{t.knowledge.editorsOnly}</p>
      ) : agent.knowledgeSearchInstructions ? (
        <DocumentUpload agentId={agent.id} onUploaded={documents.reload} />
      ) : (
        <p class="notice">{t.knowledge.noInstructions}</p>
      )}
      <LoadedView resource={documents}>
        {(page) =>
          page.data.length === 0 ? (
            <p class="notice">{t.knowledge.empty}</p>
          ) : (
            <>
              <DocumentTable documents={page.data} onDeleted={documents.reload} />
              <Paging
                label={t.knowledge.title}
                page={page}
                size={PAGE_SIZE}
                onMove={(first) => route(`/knowledge${queryString({ agentId: agent.id, offset: first || null })}`)}
              />
            </>
          )
        }
      </LoadedView>
    </>
  );
}

function DocumentTable({ documents, onDeleted }: { documents: readonly Document[]; onDeleted: () => void }) {
  const { name, status, passages, size, added } = t.knowledge.columns;
  const { query } = useLocation();
  return (
    <Table label={t.knowledge.title} columns={[name, status, passages, size, added, ""]}>
      {documents.map((document) => (
        <tr key={document.id} aria-current={document.id === query.document ? "true" : undefined}>
          <td class="clip" title={document.filename}>
            {document.name}
          </td>
          <td>
            <span class={`badge badge-${TONES[document.status]}`}>{t.knowledge.status[document.status]}</span>{" "}
            {document.error !== null && <span class="quiet">{document.error}</span>}
          </td>
          <td class="figure">{document.chunkCount}</td>
          <td class="figure">{bytes(document.fileSize)}</td>
          <td>
            <Time iso={document.createdAt} />
          </td>
          <td>
            {hasRole("editor") && (
              <DeleteButton
                path={`/v1/knowledge/${document.id}`}
                name={document.name}
                question={t.knowledge.confirmDelete(document.name)}
                consequence={t.knowledge.confirmDeleteText}
                onDeleted={onDeleted}
              />
            )}
          </td>
        </tr>
      ))}
    </Table>
  );
}

function bytes(count: number): string {
  if (count < 1000) return `${count} B`;
  return count < 1_000_000 ? `${(count / 1000).toFixed(1)} kB` : `${(count / 1_000_000).toFixed(1)} MB`;
}
