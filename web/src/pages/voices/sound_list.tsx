/** The background sounds: those of the server and those of the organization. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";

import { get, mediaAddress, type Schemas, upload } from "../../api/client";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { hasRole } from "../../app/session";
import { DeleteButton } from "../../components/deletion";
import { Field, TextField } from "../../components/fields";
import { LoadedView } from "../../components/loaded_view";
import { notify } from "../../components/notices";
import { Table } from "../../components/table";
import { t } from "../../texts";
import { duration } from "../../texts/format";

type Sound = Schemas["BackgroundSound"];

const PATH = "/v1/background-sounds";

export function SoundList() {
  const sounds = useResource((signal) => get<Sound[]>(PATH, {}, signal), []);
  const mayEdit = hasRole("editor");
  const { name, origin, duration: length, listen } = t.sounds.columns;
  return (
    <>
      <LoadedView resource={sounds}>
        {(all) =>
          all.length === 0 ? (
            <p class="notice">{t.sounds.empty}</p>
          ) : (
            <Table label={t.voices.tabs.sounds} columns={[name, origin, length, listen, ""]}>
              {all.map((sound) => (
                <tr key={sound.id}>
                  <td class="clip">{sound.name}</td>
                  <td>{sound.isSystemPreset ? t.sounds.preset : t.sounds.own}</td>
                  <td class="figure">{duration(sound.durationSeconds)}</td>
                  <td>
                    {/* biome-ignore lint/a11y/useMediaCaption: a background sound has no words */}
                    <audio
                      controls
                      preload="none"
                      src={mediaAddress(`${PATH}/${sound.id}/audio`)}
                      aria-label={t.voices.listen(sound.name)}
                    />
                  </td>
                  <td>
                    {!sound.isSystemPreset && mayEdit && (
                      <DeleteButton
                        path={`${PATH}/${sound.id}`}
                        name={sound.name}
                        question={t.sounds.confirmDelete(sound.name)}
                        consequence={t.sounds.confirmDeleteText}
                        onDeleted={sounds.reload}
                      />
                    )}
                  </td>
                </tr>
              ))}
            </Table>
          )
        }
      </LoadedView>
      {mayEdit ? <SoundUpload onUploaded={sounds.reload} /> : <p class="quiet">{t.sounds.editorsOnly}</p>}
    </>
  );
}

function SoundUpload({ onUploaded }: { onUploaded: () => void }) {
  const name = useSignal("");
  const share = useSignal<number | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const { busy, problem, fields, run } = useSaving();

  async function send(event: Event) {
    event.preventDefault();
    const file = input.current?.files?.[0];
    if (file === undefined) return;
    const form = new FormData();
    form.append("name", name.value.trim() || file.name);
    form.append("file", file);
    const sent = await run(() =>
      upload(PATH, form, (done) => {
        share.value = done;
      }),
    );
    share.value = null;
    if (!sent) return;
    notify(t.actions.saved);
    name.value = "";
    if (input.current) input.current.value = "";
    onUploaded();
  }

  return (
    <form class="panel next" onSubmit={(event) => void send(event)}>
      <h2>{t.sounds.upload}</h2>
      <Field label={t.sounds.file} help={t.sounds.fileHelp} problem={fields.value.file} required>
        {(attributes) => <input {...attributes} ref={input} type="file" accept=".wav,.mp3,.ogg,.opus,.flac,audio/*" />}
      </Field>
      <TextField
        label={t.sounds.name}
        maxLength={255}
        problem={fields.value.name}
        value={name.value}
        onInput={(value) => {
          name.value = value;
        }}
      />
      {share.value !== null && <progress aria-label={t.knowledge.uploading(name.value)} value={share.value} />}
      <p class="problem" role="alert">
        {problem}
      </p>
      <div class="actions">
        <button type="submit" class="primary" disabled={busy.value}>
          {t.sounds.submit}
        </button>
      </div>
    </form>
  );
}
