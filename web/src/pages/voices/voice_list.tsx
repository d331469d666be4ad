/** The voices, each of which speaks a text of the user's. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { everything, queryString, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { NumberField, TextAreaField, TextField } from "../../components/fields";
import { LoadedView } from "../../components/loaded_view";
import { notify } from "../../components/notices";
import { Table } from "../../components/table";
import { t } from "../../texts";
import { language as languageName } from "../../texts/format";

type Voice = Schemas["Voice"];

const SHOWN = 30;

export function VoiceList() {
  const voices = useResource((signal) => everything<Voice>("/v1/voices", signal), []);
  const text = useSignal<string>(t.voices.sample);
  const speed = useSignal<number | null>(1);
  const filter = useSignal("");
  return (
    <LoadedView resource={voices}>
      {(all) =>
        all.length === 0 ? (
          <p class="notice">{t.voices.empty}</p>
        ) : (
          <>
            <div class="panel columns">
              <TextAreaField
                label={t.voices.text}
                help={t.voices.textHelp}
                rows={2}
                maxLength={300}
                value={text.value}
                onInput={(value) => {
                  text.value = value;
                }}
              />
              <NumberField
                label={t.voices.speed}
                help={t.voices.speedHelp}
                min={0.6}
                max={1.5}
                step={0.1}
                value={speed.value}
                onInput={(value) => {
                  speed.value = value;
                }}
              />
              <TextField
                label={t.voices.filter}
                type="search"
                value={filter.value}
                onInput={(value) => {
                  filter.value = value;
                }}
              />
            </div>
            <Voices voices={matching(all, filter.value)} text={text.value} speed={speed.value ?? 1} />
          </>
        )
      }
    </LoadedView>
  );
}

function Voices({ voices, text, speed }: { voices: readonly Voice[]; text: string; speed: number }) {
  const playing = useSignal<string | null>(null);
  const player = useRef<HTMLAudioElement | null>(null);
  useEffect(() => () => player.current?.pause(), []);

  function stop() {
    player.current?.pause();
    playing.value = null;
  }

  function listen(voice: Voice) {
    stop();
    const audio = new Audio(`/v1/voices/${voice.id}/preview${queryString({ text: text.trim() || null, speed })}`);
    player.current = audio;
    playing.value = voice.id;
    audio.onended = stop;
    audio.play().catch(() => {
      if (player.current !== audio || playing.value !== voice.id) return;
      playing.value = null;
      notify(t.voices.failed);
    });
  }

  if (voices.length === 0) return <p class="notice">{t.voices.noMatch}</p>;
  const { name, language, engine, quality, listen: heading } = t.voices.columns;
  const rated = voices.some((each) => each.quality !== null);
  return (
    <>
      <Table label={t.voices.title} columns={[name, language, engine, ...(rated ? [quality] : []), heading]}>
        {voices.slice(0, SHOWN).map((voice) => (
          <tr key={voice.id}>
            <td class="clip">{voice.name}</td>
            <td>{languageOf(voice)}</td>
            <td>{voice.engine}</td>
            {rated && <td>{voice.quality ?? ""}</td>}
            <td>
              {playing.value === voice.id ? (
                <button type="button" onClick={stop}>
                  {t.voices.stop}
                </button>
              ) : (
                <button type="button" aria-label={t.voices.listen(voice.name)} onClick={() => listen(voice)}>
                  {heading}
                </button>
              )}
            </td>
          </tr>
        ))}
      </Table>
      {voices.length > SHOWN && <p class="quiet">{t.voices.more(voices.length - SHOWN)}</p>}
    </>
  );
}

function languageOf(voice: Voice): string {
  return voice.language ? languageName(voice.language) : "";
}

function matching(voices: readonly Voice[], text: string): readonly Voice[] {
  const wanted = text.trim().toLowerCase();
  return voices.filter((voice) => `${voice.name} ${languageOf(voice)}`.toLowerCase().includes(wanted));
}
