/** Two versions of an agent, field by field. */

import { get, type Schemas } from "../../../api/client";
import { useResource } from "../../../api/resource";
import { LoadedView } from "../../../components/loaded_view";
import { t } from "../../../texts";
import type { Choices } from "../choices";
import { labelOf } from "../editor/editor";
import { lineDiff } from "./line_diff";

type Detail = Schemas["AgentVersionDetail"];

interface Props {
  agentId: string;
  from: number;
  to: number;
  choices: Choices;
}

/** Texts that are longer, or have several lines, are compared by lines. */
const SHORT = 80;

export function Difference({ agentId, from, to, choices }: Props) {
  const path = `/v1/agents/${agentId}/versions`;
  const both = useResource(
    (signal) =>
      Promise.all([get<Detail>(`${path}/${from}`, {}, signal), get<Detail>(`${path}/${to}`, {}, signal)] as const),
    [agentId, from, to],
  );
  const texts = t.agents.versions;
  return (
    <section class="panel" aria-labelledby="difference-title">
      <h2 id="difference-title">{texts.title(from, to)}</h2>
      <LoadedView resource={both}>
        {([before, after]) => {
          const names = (Object.keys(after.agent) as (keyof Detail["agent"])[]).filter(
            (name) => JSON.stringify(before.agent[name]) !== JSON.stringify(after.agent[name]),
          );
          if (names.length === 0) return <p>{texts.same}</p>;
          return names.map((name) => (
            <section key={name} class="difference">
              <h3>{labelOf(name.replace(/Set$/, ""))}</h3>
              <FieldDifference before={shown(before.agent[name], choices)} after={shown(after.agent[name], choices)} />
            </section>
          ));
        }}
      </LoadedView>
      <p class="quiet">{texts.secretNote}</p>
    </section>
  );
}

function FieldDifference({ before, after }: { before: string; after: string }) {
  const texts = t.agents.versions;
  const long = [before, after].some((text) => text.length > SHORT || text.includes("\n"));
  const runs = long ? lineDiff(before, after) : null;
  if (runs === null) {
    return (
      <>
        {long && <p class="quiet">{texts.whole}</p>}
        <Lines kind="removed" lines={[before]} />
        <Lines kind="added" lines={[after]} />
      </>
    );
  }
  return (
    <>
      {runs.map(({ kind, lines }, index) =>
        kind === "same" ? (
          <p key={String(index)} class="quiet">
            {texts.unchangedLines(lines.length)}
          </p>
        ) : (
          <Lines key={String(index)} kind={kind} lines={lines} />
        ),
      )}
    </>
  );
}

function Lines({ kind, lines }: { kind: "removed" | "added"; lines: readonly string[] }) {
  return (
    <div class={`lines lines-${kind}`}>
      <span class="quiet">{t.agents.versions[kind]}</span>
      <pre>{lines.join("\n")}</pre>
    </div>
  );
}

function shown(value: unknown, choices: Choices): string {
  const texts = t.agents.versions;
  if (value === null || value === "") return texts.nothing;
  if (typeof value === "boolean") return value ? texts.on : texts.off;
  if (Array.isArray(value)) {
    if (value.length === 0) return texts.nothing;
    return value.map((each) => (typeof each === "string" ? named(each, choices) : JSON.stringify(each))).join("\n");
  }
  return named(String(value), choices);
}

/** The name of what an id stands for. */
function named(text: string, { voices, models, sounds, tools }: Choices): string {
  return [voices, models, sounds, tools].flat().find(({ id }) => id === text)?.name ?? text;
}
