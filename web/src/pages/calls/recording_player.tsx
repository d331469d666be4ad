/** The recording: both channels as a waveform, from peaks that the server computes. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { get } from "../../api/client";
import { useResource } from "../../api/resource";
import { LoadedView } from "../../components/loaded_view";
import { t } from "../../texts";
import { duration } from "../../texts/format";
import type { Playback } from "./playback";
import { Waveform, type WaveformPeaks } from "./waveform";

const SPEEDS = [0.75, 1, 1.25, 1.5, 2];

interface Props {
  /** The address of the recording. */
  address: string;
  playback: Playback;
}

export function RecordingPlayer({ address, playback }: Props) {
  const element = useRef<HTMLAudioElement>(null);
  const copied = useSignal(false);
  const waveform = useResource(
    (signal) => get<WaveformPeaks>(address.replace(/recording$/, "waveform"), {}, signal),
    [address],
  );
  useEffect(() => (element.current ? playback.attach(element.current) : undefined), [playback]);

  async function share() {
    const link = new URL(location.href);
    link.searchParams.set("t", playback.position.value.toFixed(1));
    await navigator.clipboard.writeText(link.href);
    copied.value = true;
  }

  const { recording } = t.call;
  return (
    <section class="player" aria-label={recording.title}>
      {/* biome-ignore lint/a11y/useMediaCaption: the transcript stands below */}
      <audio ref={element} src={address} preload="metadata" />
      <LoadedView resource={waveform}>{(peaks) => <Waveform peaks={peaks} playback={playback} />}</LoadedView>
      <div class="player-bar">
        <button type="button" class="primary" onClick={() => void playback.toggle()}>
          {playback.playing.value ? recording.pause : recording.play}
        </button>
        <span class="figure">
          {recording.position(duration(playback.position.value), duration(playback.duration.value))}
        </span>
        <label class="field-inline">
          {recording.speed}
          <select onChange={(event) => playback.setSpeed(Number(event.currentTarget.value))}>
            {SPEEDS.map((factor) => (
              <option key={factor} value={factor} selected={factor === 1}>
                {factor}×
              </option>
            ))}
          </select>
        </label>
        <button type="button" onClick={() => void share()}>
          {copied.value ? recording.copied : recording.share}
        </button>
      </div>
    </section>
  );
}
