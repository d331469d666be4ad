/** Voices to listen to, and the background sounds of calls. */

import { useTab } from "../../app/tab";
import { useTitle } from "../../app/title";
import { Tabs } from "../../components/tabs";
import { t } from "../../texts";
import { SoundList } from "./sound_list";
import { VoiceList } from "./voice_list";

export default function VoicesPage() {
  useTitle(t.voices.title);
  const [tab, show] = useTab(["voices", "sounds"], "voices");
  return (
    <>
      <h1>{t.voices.title}</h1>
      <Tabs
        label={t.voices.title}
        tabs={[
          ["voices", t.voices.tabs.voices],
          ["sounds", t.voices.tabs.sounds],
        ]}
        selected={tab}
        onSelect={show}
      >
        {tab === "voices" ? <VoiceList /> : <SoundList />}
      </Tabs>
    </>
  );
}
