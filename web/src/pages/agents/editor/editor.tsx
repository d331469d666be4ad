/** The form of an agent: its sections, and the bar that saves what was changed. */

import { write } from "../../../api/client";
import type { Saving } from "../../../api/saving";
import { notify } from "../../../components/notices";
import { t } from "../../../texts";
import type { Choices } from "../choices";
import { AfterCallSection } from "./after_call_section";
import type { Agent, Draft } from "./draft";
import { LimitsSection } from "./limits_section";
import { ListeningSection } from "./listening_section";
import { PromptSection } from "./prompt_section";
import { ToolsSection } from "./tools_section";
import { TransfersSection } from "./transfers_section";
import { VoiceSection } from "./voice_section";

const SECTIONS = [
  ["prompt", PromptSection],
  ["voice", VoiceSection],
  ["listening", ListeningSection],
  ["tools", ToolsSection],
  ["transfers", TransfersSection],
  ["afterCall", AfterCallSection],
  ["limits", LimitsSection],
] as const;

export function Editor({ draft, choices, saving }: { draft: Draft; choices: Choices; saving: Saving }) {
  const { sections, sectionsLabel } = t.agents;

  async function save() {
    const { id, version } = draft.stored.value;
    let saved: Agent | undefined;
    const done = await saving.run(async () => {
      saved = await write<Agent>("PATCH", `/v1/agents/${id}`, draft.body());
    });
    if (!done || saved === undefined) return;
    draft.accept(saved);
    notify((saved.version > version + 1 ? t.agents.savedBetween : t.agents.savedAs)(saved.version));
  }

  return (
    <form
      class="agent-editor"
      noValidate // the server says what is wrong, in the field's place
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <nav class="section-links" aria-label={sectionsLabel}>
        <ul>
          {SECTIONS.map(([name]) => (
            <li key={name}>
              <a href={`#${name}`}>{sections[name]}</a>
            </li>
          ))}
        </ul>
      </nav>
      <div>
        {SECTIONS.map(([name, Section]) => (
          <section key={name} id={name} class="panel" aria-labelledby={`${name}-title`}>
            <h2 id={`${name}-title`}>{sections[name]}</h2>
            <Section draft={draft} choices={choices} />
          </section>
        ))}
        {!draft.readOnly && <SaveBar draft={draft} saving={saving} />}
      </div>
    </form>
  );
}

function SaveBar({ draft, saving }: { draft: Draft; saving: Saving }) {
  const count = draft.changed.value.length;
  return (
    <div class="save-bar">
      <div>
        <strong role="status">{count > 0 && t.agents.unsaved(count)}</strong>
        <p class="quiet">{t.agents.newCallsOnly}</p>
        <div class="problem" role="alert">
          {saving.problem.value && <Problems draft={draft} problem={saving.problem.value} />}
        </div>
      </div>
      <div class="actions">
        <button type="button" disabled={count === 0} onClick={() => draft.discard()}>
          {t.agents.discard}
        </button>
        <button type="submit" class="primary" disabled={count === 0 || saving.busy.value}>
          {t.actions.save}
        </button>
      </div>
    </div>
  );
}

/** The server's refusal, with each field by its name on the page. */
function Problems({ draft, problem }: { draft: Draft; problem: string }) {
  const found = Object.entries(draft.problems.value);
  return (
    <>
      {problem}
      {found.length > 0 && (
        <ul>
          {found.map(([path, message]) => (
            <li key={path}>
              {labelOf(path)}: {message}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

export function labelOf(path: string): string {
  const name = path.split(".", 1)[0] ?? path;
  const labels: Record<string, { label: string }> = t.agents.fields;
  return Object.hasOwn(labels, name) ? (labels[name]?.label ?? path) : path;
}
