/** Voices to listen to, and the background sounds of calls. */

import { useSignal } from "@preact/signals";

import { useTitle } from "../../app/title";
import { Tabs } from "../../components/tabs";
import { t } from "../../texts";
import { SoundList } from "./sound_list";
import { VoiceList } from "./voice_list";

export default function VoicesPage() {
  useTitle(t.voices.title);
  const tab = useSignal<"voices" | "sounds">("voices");
  return (
    <>
      <h1>{t.voices.title}</h1>
      <Tabs
        label={t.voices.title}
        tabs={[
          ["voices", t.voices.tabs.voices],
          ["sounds", t.voices.tabs.sounds],
        ]}
        selected={tab.value}
        onSelect={(name) => {
          tab.value = name;
        }}
      >
        {tab.value === "voices" ? <VoiceList /> : <SoundList />}
      </Tabs>
    </>
  );
}
