/** How the agent sounds. */

import { mediaAddress, queryString } from "../../../api/client";
import { t } from "../../../texts";
import type { Choices } from "../choices";
import { AudioPreview } from "./audio_preview";
import type { Draft } from "./draft";
import { DraftNumber, DraftSelect, DraftText } from "./draft_fields";

export function VoiceSection({ draft, choices }: { draft: Draft; choices: Choices }) {
  const { fields, serverDefault, listen } = t.agents;
  const { voiceId, backgroundSoundId } = draft.values.value;
  const voice = choices.voices.find(({ id }) => id === voiceId);
  const sound = backgroundSoundId === null ? undefined : choices.sounds.find(({ id }) => id === backgroundSoundId);
  return (
    <>
      <DraftSelect
        draft={draft}
        name="voiceId"
        options={[["", serverDefault], ...choices.voices.map((each) => [each.id, voiceName(each)] as const)]}
      />
      {voice && (
        <AudioPreview
          label={listen.voice}
          url={`/v1/voices/${voice.id}/preview${queryString({ speed: draft.values.value.voiceSpeed })}`}
        />
      )}
      <div class="field-grid">
        <DraftNumber draft={draft} name="voiceSpeed" min={0.6} max={1.5} step="any" />
        <DraftNumber draft={draft} name="voiceStability" min={0} max={1} step="any" />
      </div>
      <DraftText draft={draft} name="languageHint" maxLength={35} />
      <DraftSelect
        draft={draft}
        name="backgroundSoundId"
        options={[["", fields.backgroundSoundId.none], ...choices.sounds.map(({ id, name }) => [id, name] as const)]}
      />
      {sound && <AudioPreview label={listen.sound} url={mediaAddress(`/v1/background-sounds/${sound.id}/audio`)} />}
      <DraftNumber
        draft={draft}
        name="backgroundSoundVolume"
        min={0}
        max={1}
        step="any"
        disabled={sound === undefined && backgroundSoundId === null}
      />
    </>
  );
}

function voiceName({ name, language }: Choices["voices"][number]): string {
  return language === null ? name : `${name} (${language})`;
}
