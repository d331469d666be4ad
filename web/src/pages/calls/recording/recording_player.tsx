/** The recording: both channels as a waveform, from peaks that the server computes. */

import { useComputed } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { get, mediaAddress } from "../../../api/client";
import { useResource } from "../../../api/resource";
import { CopyButton } from "../../../components/copy_button";
import { LoadedView } from "../../../components/loaded_view";
import { t } from "../../../texts";
import { duration } from "../../../texts/format";
import type { Playback } from "./playback";
import { Waveform, type WaveformPeaks } from "./waveform";

const SPEEDS = [0.75, 1, 1.25, 1.5, 2];

interface Props {
  /** The address of the call in the API. */
  path: string;
  playback: Playback;
  /** What is drawn below the waveform, on its clock. */
  children: ComponentChildren;
}

export function RecordingPlayer({ path, playback, children }: Props) {
  const element = useRef<HTMLAudioElement>(null);
  const waveform = useResource((signal) => get<WaveformPeaks>(`${path}/waveform`, {}, signal), [path]);
  useEffect(() => (element.current ? playback.attach(element.current) : undefined), [playback]);

  function linkToMoment(): string {
    const link = new URL(location.href);
    link.searchParams.set("t", playback.position.value.toFixed(1));
    return link.href;
  }

  const { recording } = t.call;
  return (
    <section class="player" aria-label={recording.title}>
      {/* biome-ignore lint/a11y/useMediaCaption: the transcript stands below */}
      <audio ref={element} src={mediaAddress(`${path}/recording`)} preload="metadata" />
      <LoadedView resource={waveform}>{(peaks) => <Waveform peaks={peaks} playback={playback} />}</LoadedView>
      {children}
      {playback.failed.value && (
        <p class="problem" role="alert">
          {recording.failed}{" "}
          <button type="button" onClick={() => playback.retry()}>
            {t.states.retry}
          </button>
        </p>
      )}
      <div class="player-bar">
        <button type="button" class="primary" disabled={playback.failed.value} onClick={() => void playback.toggle()}>
          {playback.playing.value ? recording.pause : recording.play}
        </button>
        <Position playback={playback} />
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
        <CopyButton text={linkToMoment} name={recording.share} />
      </div>
    </section>
  );
}

/** A component of its own, because it changes each second of playback, and the player does not. */
function Position({ playback }: { playback: Playback }) {
  const second = useComputed(() => Math.floor(playback.position.value)).value;
  return <span class="figure">{t.call.recording.position(duration(second), duration(playback.duration.value))}</span>;
}
