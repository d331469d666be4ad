/** The tools of the organization: a list, and the editor of the one that the address names. */

import { useLocation } from "preact-iso";

import { get, getPage, queryString, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { hasRole } from "../../app/session";
import { useTitle } from "../../app/title";
import { LoadedView } from "../../components/loaded_view";
import { Paging } from "../../components/paging";
import { Table } from "../../components/table";
import { t } from "../../texts";
import { ToolEditor } from "./tool_editor";

type Tool = Schemas["Tool"];

const PAGE_SIZE = 50;

export default function ToolsPage() {
  useTitle(t.tools.title);
  const { query } = useLocation();
  if (query.tool === "new" && hasRole("editor")) return <ToolEditor key="new" tool={null} onSaved={() => {}} />;
  return query.tool ? <OneTool key={query.tool} id={query.tool} /> : <ToolList />;
}

function OneTool({ id }: { id: string }) {
  const tool = useResource((signal) => get<Tool>(`/v1/tools/${encodeURIComponent(id)}`, {}, signal), [id]);
  return (
    <LoadedView resource={tool}>
      {(value) => <ToolEditor key={value.updatedAt} tool={value} onSaved={tool.reload} />}
    </LoadedView>
  );
}

function ToolList() {
  const { query, route } = useLocation();
  const offset = Number.parseInt(query.offset ?? "0", 10) || 0;
  const tools = useResource((signal) => getPage<Tool>("/v1/tools", { limit: PAGE_SIZE, offset }, signal), [offset]);
  const { name, description, request } = t.tools.columns;
  return (
    <>
      <div class="title-bar">
        <h1>{t.tools.title}</h1>
        {hasRole("editor") ? (
          <a class="button primary" href="/tools?tool=new">
            {t.tools.create}
          </a>
        ) : (
          <span class="quiet">{t.tools.editorsOnly}</span>
        )}
      </div>
      <LoadedView resource={tools}>
        {(page) =>
          page.data.length === 0 ? (
            <p class="notice">{t.tools.empty}</p>
          ) : (
            <>
              <Table label={t.tools.title} columns={[name, description, request]}>
                {page.data.map((tool) => (
                  <tr key={tool.id}>
                    <td class="clip">
                      <a href={`/tools?tool=${tool.id}`}>{tool.name}</a>
                    </td>
                    <td class="clip">{tool.description ?? ""}</td>
                    <td class="clip">
                      <code>
                        {tool.config.method} {tool.config.url}
                      </code>
                    </td>
                  </tr>
                ))}
              </Table>
              <Paging
                label={t.tools.title}
                page={page}
                size={PAGE_SIZE}
                onMove={(first) => route(`/tools${queryString({ offset: first || null })}`)}
              />
            </>
          )
        }
      </LoadedView>
    </>
  );
}
