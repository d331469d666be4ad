/** "Try other turn settings": replays the call's recording with them, and compares. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { ApiError, get, queryString, type Schemas, write } from "../../../api/client";
import { useResource } from "../../../api/resource";
import { useSaving } from "../../../api/saving";
import { changes, useDraft } from "../../../app/draft";
import { hasRole } from "../../../app/session";
import { NumberField } from "../../../components/fields";
import { LoadedView } from "../../../components/loaded_view";
import {
  DEFAULT_TURN_SETTINGS,
  TURN_SETTINGS,
  type TurnSettings,
  turnSettingsQuery,
} from "../../../components/turn_settings";
import { t } from "../../../texts";
import type { Playback } from "../recording/playback";
import { ReplayResult } from "./replay_result";

type Call = Schemas["Call"];
type Replay = Schemas["CallReplay"];

interface Props {
  call: Call;
  /** Null: there is no recording. */
  playback: Playback | null;
}

export function ReplayPanel({ call, playback }: Props) {
  if (!hasRole("editor")) return <p class="notice">{t.call.replay.needsEditor}</p>;
  if (playback === null) return <p class="notice">{t.call.replay.noRecording}</p>;
  return <WithStart call={call} playback={playback} />;
}

function WithStart({ call, playback }: { call: Call; playback: Playback }) {
  const start = useResource((signal) => settingsOf(call, signal), [call.id]);
  return (
    <LoadedView resource={start}>{(value) => <ReplayForm call={call} start={value} playback={playback} />}</LoadedView>
  );
}

function ReplayForm({ call, start, playback }: { call: Call; start: TurnSettings; playback: Playback }) {
  const { replay } = t.call;
  const draft = useDraft(start);
  const saving = useSaving();
  const result = useSignal<Replay | null>(null);
  const running = useRef<AbortController | null>(null);
  const cancel = () => running.current?.abort();
  useEffect(() => cancel, []);

  async function run() {
    const aborter = new AbortController();
    running.current = aborter;
    result.value = null;
    await saving.run(async () => {
      const body = changes(start, draft.values.value);
      const found = await write<Replay>("POST", `/v1/calls/${call.id}/replay`, body, aborter.signal).catch(
        (error: unknown) => {
          if (aborter.signal.aborted) return null;
          throw error;
        },
      );
      result.value = found;
    });
  }

  const tried = changes(start, draft.values.value);
  return (
    <>
      <p>{replay.intro}</p>
      <form
        class="panel"
        noValidate // the server says what is wrong, in the field's place
        onSubmit={(event) => {
          event.preventDefault();
          void run();
        }}
      >
        <div class="field-grid">
          {TURN_SETTINGS.map(({ name, ...bounds }) => (
            <NumberField
              key={name}
              {...t.agents.fields[name]}
              {...bounds}
              name={name}
              problem={saving.fields.value[name]}
              disabled={saving.busy.value}
              value={draft.values.value[name]}
              onInput={(value) => draft.set(name, value)}
            />
          ))}
        </div>
        <div class="problem" role="alert">
          {saving.problem.value}
        </div>
        <div class="actions">
          <button type="submit" class="primary" disabled={!draft.dirty || saving.busy.value}>
            {replay.run}
          </button>
          <button type="button" disabled={!draft.dirty || saving.busy.value} onClick={() => reset(draft, start)}>
            {replay.reset}
          </button>
          {call.agentId !== null && draft.dirty && (
            <a class="button" href={`/agents/${call.agentId}${queryString(turnSettingsQuery(tried))}`}>
              {replay.useInAgent}
            </a>
          )}
        </div>
        {!draft.dirty && <p class="quiet">{replay.changeFirst}</p>}
        {saving.busy.value && <Progress onCancel={cancel} />}
      </form>
      {result.value !== null && <ReplayResult found={result.value} playback={playback} />}
    </>
  );
}

function reset(
  draft: { set: <N extends keyof TurnSettings>(name: N, value: TurnSettings[N]) => void },
  to: TurnSettings,
) {
  for (const { name } of TURN_SETTINGS) draft.set(name, to[name]);
}

/** How long the replay takes is not known before: the page shows for how long it has run. */
function Progress({ onCancel }: { onCancel: () => void }) {
  const seconds = useSignal(0);
  useEffect(() => {
    const began = performance.now();
    const timer = setInterval(() => {
      seconds.value = Math.floor((performance.now() - began) / 1000);
    }, 1000);
    return () => clearInterval(timer);
  }, []);
  return (
    <div class="actions replay-progress">
      <progress aria-label={t.call.replay.running} />
      <span>{t.call.replay.elapsed(seconds.value)}</span>
      <button type="button" onClick={onCancel}>
        {t.call.replay.cancel}
      </button>
    </div>
  );
}

/** The settings that the call had: those of its version of the agent, as far as that is still stored. */
async function settingsOf(call: Call, signal: AbortSignal): Promise<TurnSettings> {
  if (call.agentId === null) return DEFAULT_TURN_SETTINGS;
  const path = `/v1/agents/${call.agentId}`;
  const version =
    call.agentVersion === null
      ? null
      : await known(get<Schemas["AgentVersionDetail"]>(`${path}/versions/${call.agentVersion}`, {}, signal));
  const agent = version?.agent ?? (await known(get<TurnSettings>(path, {}, signal))) ?? DEFAULT_TURN_SETTINGS;
  return Object.fromEntries(TURN_SETTINGS.map(({ name }) => [name, agent[name]])) as unknown as TurnSettings;
}

/** Null for what does not exist any more. */
async function known<T>(loading: Promise<T>): Promise<T | null> {
  return await loading.catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  });
}
