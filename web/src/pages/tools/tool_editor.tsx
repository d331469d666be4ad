/** The editor of a tool, new or stored, and its trial. */

import { useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";

import { type Schemas, write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { lines, useDraft } from "../../app/draft";
import { useUnsavedChanges } from "../../app/leave_guard";
import { hasRole } from "../../app/session";
import { DeleteButton } from "../../components/deletion";
import { CheckboxField, NumberField, SelectField, TextAreaField, TextField } from "../../components/fields";
import { notify } from "../../components/notices";
import { t } from "../../texts";
import { ParametersField } from "./parameters_field";
import { ToolTrial } from "./tool_trial";

type Tool = Schemas["Tool"];

interface Values {
  name: string;
  description: string;
  method: string;
  url: string;
  timeout: number | null;
  headers: string;
  parameters: string;
  allowVariableHost: boolean;
}

const NEW: Values = {
  name: "",
  description: "",
  method: "GET",
  url: "https://",
  timeout: 5000,
  headers: "",
  parameters: "[]",
  allowVariableHost: false,
};
const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const;

interface Props {
  /** `null`: a new one. */
  tool: Tool | null;
  onSaved: () => void;
}

export function ToolEditor({ tool, onSaved }: Props) {
  const { route } = useLocation();
  const { values, set, dirty } = useDraft(tool === null ? NEW : valuesOf(tool));
  const own = useSignal<Readonly<Record<string, string>>>({});
  const { busy, problem, fields, run } = useSaving();
  const disabled = !hasRole("editor");
  useUnsavedChanges(dirty);
  const value = values.value;

  async function save(event: Event) {
    event.preventDefault();
    const [body, wrong] = bodyOf(value);
    own.value = wrong;
    if (body === null) return;
    const saved = await run(async () => {
      if (tool !== null) {
        await write<Tool>("PATCH", `/v1/tools/${tool.id}`, body);
        return;
      }
      const created = await write<Tool>("POST", "/v1/tools", { type: "http", ...body });
      values.value = NEW;
      setTimeout(() => route(`/tools?tool=${created.id}`), 0); // when nothing is unsaved any more
    });
    if (!saved) return;
    notify(t.actions.saved);
    onSaved();
  }

  return (
    <>
      <a class="back" href="/tools">
        {t.tools.backToList}
      </a>
      <div class="title-bar">
        <h1>{tool?.name ?? t.tools.create}</h1>
        {tool !== null && (
          <DeleteButton
            path={`/v1/tools/${tool.id}`}
            name={tool.name}
            question={t.tools.confirmDelete(tool.name)}
            consequence={t.tools.confirmDeleteText}
            disabled={disabled}
            onDeleted={() => route("/tools")}
          />
        )}
      </div>
      {disabled && <p class="quiet">{t.tools.editorsOnly}</p>}
      <form class="panel" onSubmit={(event) => void save(event)}>
        <div class="columns">
          <TextField
            label={t.tools.name}
            help={t.tools.nameHelp}
            problem={fields.value.name}
            {...{ disabled, required: true, maxLength: 255, value: value.name }}
            onInput={(each) => set("name", each)}
          />
          <SelectField
            label={t.tools.method}
            help={t.tools.methodHelp}
            problem={fields.value["config.method"]}
            {...{ disabled, value: value.method, options: METHODS.map((each) => [each, each] as const) }}
            onInput={(each) => set("method", each)}
          />
          <div class="wide">
            <TextField
              label={t.tools.url}
              help={t.tools.urlHelp}
              problem={fields.value["config.url"]}
              {...{ disabled, required: true, value: value.url }}
              onInput={(each) => set("url", each)}
            />
            <TextAreaField
              label={t.tools.description}
              help={t.tools.descriptionHelp}
              problem={fields.value.description}
              {...{ disabled, rows: 3, value: value.description }}
              onInput={(each) => set("description", each)}
            />
            <ParametersField
              value={value.parameters}
              onInput={(each) => set("parameters", each)}
              problem={own.value.parameters ?? problemBelow(fields.value, "config.body")}
              problems={fields.value}
              disabled={disabled}
            />
            <TextAreaField
              label={t.tools.headers}
              help={t.tools.headersHelp}
              problem={own.value.headers ?? problemBelow(fields.value, "config.headers")}
              {...{ disabled, code: true, rows: 3, value: value.headers }}
              onInput={(each) => set("headers", each)}
            />
          </div>
          <NumberField
            label={t.tools.timeout}
            help={t.tools.timeoutHelp}
            problem={fields.value["config.timeout"]}
            {...{ disabled, min: 100, max: 30000, value: value.timeout }}
            onInput={(each) => set("timeout", each)}
          />
          <CheckboxField
            label={t.tools.variableHost}
            help={t.tools.variableHostHelp}
            {...{ disabled, value: value.allowVariableHost }}
            onInput={(each) => set("allowVariableHost", each)}
          />
        </div>
        <p class="problem" role="alert">
          {problem}
        </p>
        <div class="actions">
          <button type="submit" class="primary" disabled={disabled || busy.value || !dirty}>
            {t.actions.save}
          </button>
        </div>
      </form>
      {tool !== null && !disabled && <ToolTrial id={tool.id} dirty={dirty} />}
    </>
  );
}

function valuesOf(tool: Tool): Values {
  const { config } = tool;
  return {
    name: tool.name,
    description: tool.description ?? "",
    method: config.method,
    url: config.url,
    timeout: config.timeout,
    headers: config.headers.map(({ key, value }) => `${key}: ${value}`).join("\n"),
    parameters: JSON.stringify(config.body, null, 2),
    allowVariableHost: config.allowVariableHost ?? false,
  };
}

/** The body of the request; `null`, and what is wrong with each field, if a text cannot be read. */
function bodyOf(values: Values): [object | null, Record<string, string>] {
  const wrong: Record<string, string> = {};
  const headers = lines(values.headers).map((line) => /^([^:]+):\s*(.*)$/.exec(line));
  if (headers.includes(null)) wrong.headers = t.tools.headersProblem;
  let body: unknown = null;
  try {
    body = JSON.parse(values.parameters);
  } catch {
    // told below
  }
  if (!Array.isArray(body)) wrong.parameters = t.tools.parametersProblem;
  if (Object.keys(wrong).length > 0) return [null, wrong];
  const config = {
    url: values.url,
    method: values.method,
    timeout: values.timeout ?? 5000,
    headers: headers.map((match) => ({ key: match?.[1]?.trim(), value: match?.[2] })),
    body,
    allowVariableHost: values.allowVariableHost,
  };
  return [{ name: values.name, description: values.description, config }, {}];
}

/** The first problem of a field or of a part of it. */
function problemBelow(fields: Readonly<Record<string, string>>, path: string): string | undefined {
  const name = Object.keys(fields).find((each) => each === path || each.startsWith(`${path}.`));
  if (name === undefined) return undefined;
  return name === path ? fields[name] : `${name.slice(path.length + 1)}: ${fields[name]}`;
}
