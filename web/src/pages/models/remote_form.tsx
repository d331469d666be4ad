/** The form of a new remote model, with the fields that its kind has. */

import { useSignal } from "@preact/signals";
import { useId } from "preact/hooks";

import { type Schemas, write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { useDraft } from "../../app/draft";
import { useUnsavedChanges } from "../../app/leave_guard";
import { NumberField, SelectField, TextAreaField, TextField } from "../../components/fields";
import { notify } from "../../components/notices";
import { t } from "../../texts";
import { EMPTY_VOICE, VoicesField, type VoiceValues } from "./remote_voices";

type Body = Schemas["RemoteModelCreate"];
type Problems = Readonly<Record<string, string>>;
type Limits = Record<(typeof LIMITS)[number], number | null>;

interface Values {
  kind: Body["kind"];
  name: string;
  url: string;
  model: string;
  key: string;
  contextLength: number | null;
  voices: readonly VoiceValues[];
  limits: Limits;
  extra: string;
}

const KINDS: readonly Body["kind"][] = ["llm", "stt", "tts", "embedding"];
const LIMITS = ["connectSeconds", "firstWordSeconds", "betweenWordsSeconds", "totalSeconds"] as const;
const NEW: Values = {
  kind: "llm",
  name: "",
  url: "",
  model: "",
  key: "",
  contextLength: null,
  voices: [EMPTY_VOICE],
  limits: { connectSeconds: null, firstWordSeconds: null, betweenWordsSeconds: null, totalSeconds: null },
  extra: "",
};
const texts = t.models.remoteForm;

export function NewRemoteModel({ onAdded }: { onAdded: () => void }) {
  const id = useId();
  const { values, set, dirty } = useDraft(NEW);
  const extraProblem = useSignal("");
  const { busy, problem, fields, run } = useSaving();
  useUnsavedChanges(dirty);
  const value = values.value;
  const problems: Problems = extraProblem.value === "" ? fields.value : { ...fields.value, extra: extraProblem.value };

  async function add(event: Event) {
    event.preventDefault();
    const extra = objectOf(value.extra);
    extraProblem.value = extra === null ? texts.extraProblem : "";
    if (extra === null) return;
    const body = bodyOf(value, extra);
    if (!(await run(() => write("POST", "/v1/remote-models", body)))) return;
    values.value = NEW;
    notify(texts.added(body.name));
    onAdded();
  }

  return (
    <form class="panel next" aria-labelledby={id} onSubmit={(event) => void add(event)}>
      <h2 id={id}>{texts.title}</h2>
      <div class="columns">
        <SelectField
          label={texts.kind}
          help={texts.kindHelp}
          problem={problems.kind}
          value={value.kind}
          options={KINDS.map((kind) => [kind, t.models.kinds[kind]] as const)}
          onInput={(kind) => set("kind", kind as Body["kind"])}
        />
        <TextField
          label={texts.name}
          help={texts.nameHelp}
          problem={problems.name}
          maxLength={128}
          required
          value={value.name}
          onInput={(name) => set("name", name)}
        />
        <TextField
          label={texts.url}
          help={texts.urlHelp}
          problem={problems.url}
          maxLength={4096}
          required
          value={value.url}
          onInput={(url) => set("url", url)}
        />
        <TextField
          label={texts.model}
          help={texts.modelHelp}
          problem={problems.model}
          maxLength={255}
          required
          value={value.model}
          onInput={(model) => set("model", model)}
        />
        <TextField
          label={texts.key}
          help={texts.keyHelp}
          problem={problems.key}
          type="password"
          autocomplete="new-password"
          maxLength={8192}
          value={value.key}
          onInput={(key) => set("key", key)}
        />
        {value.kind === "llm" && (
          <NumberField
            label={texts.contextLength}
            help={texts.contextLengthHelp}
            problem={problems.contextLength}
            {...{ min: 512, max: 10_000_000, value: value.contextLength }}
            onInput={(tokens) => set("contextLength", tokens)}
          />
        )}
      </div>
      {value.kind === "tts" && (
        <VoicesField voices={value.voices} problems={problems} onChange={(voices) => set("voices", voices)} />
      )}
      <More
        limits={value.limits}
        extra={value.extra}
        problems={problems}
        onLimits={(limits) => set("limits", limits)}
        onExtra={(extra) => set("extra", extra)}
      />
      <p class="problem" role="alert">
        {problem}
      </p>
      <div class="actions">
        <button type="submit" class="primary" disabled={busy.value}>
          {texts.submit}
        </button>
      </div>
    </form>
  );
}

interface MoreProps {
  limits: Limits;
  extra: string;
  problems: Problems;
  onLimits: (limits: Limits) => void;
  onExtra: (extra: string) => void;
}

/** What few models need. It opens when something in it is wrong. */
function More({ limits, extra, problems, onLimits, onExtra }: MoreProps) {
  const open = useSignal(false);
  const isWrong = Object.keys(problems).some((path) => path === "extra" || path.startsWith("timeouts."));
  return (
    <details
      open={open.value || isWrong}
      onToggle={(event) => {
        open.value = event.currentTarget.open;
      }}
    >
      <summary>{texts.more}</summary>
      <fieldset class="next">
        <legend>{texts.limits}</legend>
        <p class="help">{texts.limitsHelp}</p>
        <div class="columns">
          {LIMITS.map((name) => (
            <NumberField
              key={name}
              label={texts[name]}
              problem={problems[`timeouts.${name}`]}
              {...{ min: 0, max: 600, step: "any", value: limits[name] }}
              onInput={(seconds) => onLimits({ ...limits, [name]: seconds })}
            />
          ))}
        </div>
      </fieldset>
      <TextAreaField
        label={texts.extra}
        help={texts.extraHelp}
        problem={problems.extra}
        code
        rows={3}
        value={extra}
        onInput={onExtra}
      />
    </details>
  );
}

/** The body of the request: the fields that the kind has. */
function bodyOf(values: Values, extra: Record<string, unknown>): Body {
  const { contextLength, kind, voices } = values;
  return {
    kind,
    name: values.name.trim(),
    url: values.url.trim(),
    model: values.model.trim(),
    key: values.key.trim() === "" ? null : values.key.trim(),
    ...(kind === "llm" ? { contextLength } : {}),
    ...(kind === "tts"
      ? { voices: voices.map(({ name, language }) => ({ name: name.trim(), language: language.trim() || null })) }
      : {}),
    timeouts: values.limits,
    extra,
  };
}

/** The object of a JSON text; null if it is none. */
function objectOf(text: string): Record<string, unknown> | null {
  if (text.trim() === "") return {};
  try {
    const found: unknown = JSON.parse(text);
    return typeof found === "object" && found !== null && !Array.isArray(found)
      ? (found as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}
