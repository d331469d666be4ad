/** The voices of a new remote model: a form for each. */

import { useId } from "preact/hooks";

import { TextField } from "../../components/fields";
import { t } from "../../texts";

export interface VoiceValues {
  name: string;
  language: string;
}

interface Props {
  voices: readonly VoiceValues[];
  /** What is wrong with each field, by its path in the request. */
  problems: Readonly<Record<string, string>>;
  onChange: (voices: readonly VoiceValues[]) => void;
}

export const EMPTY_VOICE: VoiceValues = { name: "", language: "" };
/** The server's bound. */
const MOST = 256;
const texts = t.models.remoteForm.voices;

export function VoicesField({ voices, problems, onChange }: Props) {
  const id = useId();
  return (
    <section class="field" aria-labelledby={id}>
      <h3 id={id}>{texts.title}</h3>
      <p class="help">{texts.help}</p>
      {voices.map((voice, index) => {
        const change = (changes: Partial<VoiceValues>) =>
          onChange(voices.map((each, at) => (at === index ? { ...each, ...changes } : each)));
        return (
          <fieldset key={index} class="row-fields">
            <legend>{texts.item(index + 1)}</legend>
            <div class="columns">
              <TextField
                label={texts.name}
                help={texts.nameHelp}
                problem={problems[`voices.${index}.name`]}
                maxLength={128}
                required
                value={voice.name}
                onInput={(name) => change({ name })}
              />
              <TextField
                label={texts.language}
                help={texts.languageHelp}
                problem={problems[`voices.${index}.language`]}
                maxLength={10}
                value={voice.language}
                onInput={(language) => change({ language })}
              />
            </div>
            {voices.length > 1 && (
              <button type="button" onClick={() => onChange(voices.filter((_, at) => at !== index))}>
                {texts.remove(index + 1, voice.name)}
              </button>
            )}
          </fieldset>
        );
      })}
      <p class="problem">{problems.voices}</p>
      <button type="button" disabled={voices.length >= MOST} onClick={() => onChange([...voices, EMPTY_VOICE])}>
        {texts.add}
      </button>
    </section>
  );
}
