/** What shows and operates the phone of a call that is under way: its levels, and its keys. */

import { t } from "../../texts";
import type { BrowserPhone } from "./browser_phone";
import { MicrophoneChoice } from "./microphone_choice";

const KEYS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "*", "0", "#"] as const;

/** `other`: the name of the other side. */
export function Levels({ phone, other }: { phone: BrowserPhone; other: string }) {
  const levels = phone.levels.value;
  const { you } = t.testCall.levels;
  return (
    <div class="levels">
      <span>{you}</span>
      <meter aria-label={you} min={0} max={1} value={heard(levels.own)} />
      <span>{other}</span>
      <meter aria-label={other} min={0} max={1} value={heard(levels.other)} />
    </div>
  );
}

export function KeyPad({ phone }: { phone: BrowserPhone }) {
  const { testCall } = t;
  return (
    <details>
      <summary>{testCall.keys}</summary>
      <div class="key-pad">
        {KEYS.map((key) => (
          <button key={key} type="button" aria-label={testCall.key(key)} onClick={() => phone.press(key)}>
            {key}
          </button>
        ))}
      </div>
    </details>
  );
}

/** The choice of the microphone, which a click shows. */
export function MicrophoneDetails({ phone }: { phone: BrowserPhone }) {
  return (
    <details>
      <summary>{t.testCall.microphone}</summary>
      <MicrophoneChoice phone={phone} />
    </details>
  );
}

/** A peak as loudness is felt: -50 dB and less are 0. */
function heard(peak: number): number {
  return peak === 0 ? 0 : Math.max(0, 1 + Math.log10(peak) / 2.5);
}
