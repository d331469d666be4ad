/** Speaks the greeting in the agent's voice, with the values of its variables that the preview of the text has. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { queryString } from "../../../api/client";
import { t } from "../../../texts";
import type { Draft } from "./draft";
import { substitute } from "./variables";

/** Characters that the server's preview of a voice speaks. */
const MOST = 300;

export function GreetingPreview({ draft }: { draft: Draft }) {
  const { agentGreeting, voiceId, voiceSpeed } = draft.values.value;
  const text = substitute(agentGreeting ?? "", draft.samples.value).trim();
  const player = useRef<HTMLAudioElement>(null);
  const state = useSignal<"silent" | "speaking" | "failed">("silent");
  const spoken = [...text].slice(0, MOST).join("");
  const address =
    voiceId === null || voiceId === "" || spoken === ""
      ? null
      : `/v1/voices/${encodeURIComponent(voiceId)}/preview${queryString({ text: spoken, speed: voiceSpeed })}`;
  useEffect(() => {
    player.current?.pause();
    state.value = "silent";
  }, [address]);

  const { greeting } = t.agents;
  if (text === "") return null;
  const toggle = () => {
    if (state.value === "speaking") {
      player.current?.pause();
      state.value = "silent";
      return;
    }
    state.value = "speaking";
    player.current?.load();
    player.current?.play().catch(() => {
      if (state.value === "speaking") state.value = "failed";
    });
  };
  return (
    <div class="field greeting-preview">
      <button type="button" disabled={address === null} onClick={toggle}>
        {state.value === "speaking" ? greeting.stop : greeting.listen}
      </button>
      <p class="help" role="status">
        {address === null ? greeting.needsVoice : state.value === "failed" ? greeting.failed : noteOf(text)}
      </p>
      {address !== null && (
        // biome-ignore lint/a11y/useMediaCaption: its words are the field's text
        <audio
          ref={player}
          src={address}
          preload="none"
          onEnded={() => {
            state.value = "silent";
          }}
        />
      )}
    </div>
  );
}

function noteOf(text: string): string {
  const { greeting } = t.agents;
  return [...text].length > MOST ? greeting.shortened(MOST) : greeting.help;
}
