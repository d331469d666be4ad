/** What the agent may do and look up during a call. */

import { useId } from "preact/hooks";

import { everything, type Schemas } from "../../../api/client";
import { useResource } from "../../../api/resource";
import { LoadedView } from "../../../components/loaded_view";
import { t } from "../../../texts";
import type { Choices } from "../choices";
import type { Draft } from "./draft";
import { DraftTextArea } from "./draft_fields";

export function ToolsSection({ draft, choices }: { draft: Draft; choices: Choices }) {
  return (
    <>
      <ToolChoice draft={draft} tools={choices.tools} />
      <DraftTextArea draft={draft} name="knowledgeSearchInstructions" maxLength={2000} />
      <Documents draft={draft} />
    </>
  );
}

function ToolChoice({ draft, tools }: { draft: Draft; tools: Choices["tools"] }) {
  const id = useId();
  const texts = t.agents.fields.toolIds;
  const { toolIds } = draft.values.value;
  const chosen = toolIds ?? [];
  const unknown = chosen.filter((each) => tools.length > 0 && !tools.some((tool) => tool.id === each));
  const options = [
    ...tools.map((tool) => [tool.id, tool.name] as const),
    ...unknown.map((each) => [each, t.agents.unknownId(each)] as const),
  ];
  return (
    <fieldset class="field" aria-describedby={`${id}-help ${id}-problem`} disabled={draft.readOnly}>
      <legend>{texts.label}</legend>
      {([true, false] as const).map((all) => (
        <label key={String(all)} class="field-inline">
          <input
            type="radio"
            name="toolIds"
            checked={(toolIds === null) === all}
            onChange={() => draft.set("toolIds", all ? null : tools.map((tool) => tool.id))}
          />
          {all ? texts.all : texts.chosen}
        </label>
      ))}
      {toolIds !== null && (
        <div class="checks">
          {options.map(([each, name]) => (
            <label key={each} class="field-inline">
              <input
                type="checkbox"
                checked={chosen.includes(each)}
                onChange={(event) =>
                  draft.set(
                    "toolIds",
                    event.currentTarget.checked ? [...chosen, each] : chosen.filter((other) => other !== each),
                  )
                }
              />
              <span class="wrap">{name}</span>
            </label>
          ))}
        </div>
      )}
      {tools.length === 0 && <p class="quiet">{texts.none}</p>}
      <p id={`${id}-help`} class="help">
        {texts.help}
      </p>
      <p id={`${id}-problem`} class="problem">
        {draft.problemBelow("toolIds")}
      </p>
    </fieldset>
  );
}

function Documents({ draft }: { draft: Draft }) {
  const { id, knowledgeSearchInstructions } = draft.stored.value;
  const documents = useResource(
    (signal) => everything<Schemas["KnowledgeDocument"]>("/v1/knowledge", signal, { agentId: id }),
    [id],
  );
  const texts = t.agents.knowledge;
  return (
    <div class="field">
      <h3>{texts.title}</h3>
      <LoadedView resource={documents}>
        {(found) =>
          found.length === 0 ? (
            <p class="quiet">{texts.none}</p>
          ) : (
            <ul>
              {found.map((document) => (
                <li key={document.id} class="wrap">
                  {document.name} <span class="quiet">{texts.status[document.status]}</span>
                </li>
              ))}
            </ul>
          )
        }
      </LoadedView>
      {knowledgeSearchInstructions ? (
        <a href={`/knowledge?agentId=${id}`}>{texts.manage}</a>
      ) : (
        <p class="quiet">{texts.needsInstructions}</p>
      )}
    </div>
  );
}
