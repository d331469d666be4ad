/** Both channels of a recording, drawn from peaks: the caller above, the agent below. A click seeks. */

import { useComputed, useSignalEffect } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";

import { isDark } from "../../../app/theme";
import { t } from "../../../texts";
import type { Playback } from "./playback";

export interface WaveformPeaks {
  /** Seconds of audio in each peak. */
  secondsPerPeak: number;
  /** The loudest sample of each stretch, 0 to 1. */
  caller: number[];
  agent: number[];
}

const LANE_HEIGHT = 56;

export function Waveform({ peaks, playback }: { peaks: WaveformPeaks; playback: Playback }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const drawn = useMemo<{ bars?: Bars }>(() => ({}), [peaks]);
  const seconds = peaks.caller.length * peaks.secondsPerPeak;
  const position = useComputed(() => Math.round(playback.position.value)).value;

  function draw() {
    if (canvas.current) paint(canvas.current, peaks, playback.position.value / seconds, drawn);
  }
  useSignalEffect(() => {
    void isDark.value;
    draw();
  });
  useEffect(() => {
    const observer = new ResizeObserver(draw);
    if (canvas.current) observer.observe(canvas.current);
    return () => observer.disconnect();
  }, [peaks, playback]);

  function move(event: KeyboardEvent) {
    const step = { ArrowLeft: -5, ArrowRight: 5, PageUp: -30, PageDown: 30 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    playback.seek(Math.min(Math.max(playback.position.value + step, 0), seconds));
  }

  return (
    <div class="waveform">
      <span class="lane-name">{t.call.recording.caller}</span>
      <span class="lane-name">{t.call.recording.agent}</span>
      <canvas
        ref={canvas}
        role="slider"
        tabIndex={0}
        aria-label={t.call.recording.title}
        aria-valuemin={0}
        aria-valuemax={Math.round(seconds)}
        aria-valuenow={position}
        onClick={(event) => playback.seek((event.offsetX / event.currentTarget.clientWidth) * seconds)}
        onKeyDown={move}
      />
    </div>
  );
}

/** The bars of both channels, drawn once for each size and colour scheme. */
interface Bars {
  key: string;
  image: HTMLCanvasElement;
}

function paint(canvas: HTMLCanvasElement, peaks: WaveformPeaks, position: number, drawn: { bars?: Bars }): void {
  const scale = devicePixelRatio;
  const [width, height] = [Math.round(canvas.clientWidth * scale), Math.round(2 * LANE_HEIGHT * scale)];
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext("2d");
  if (!context || width === 0) return;
  const style = getComputedStyle(canvas);
  const colours = ["--caller", "--agent"].map((name) => style.getPropertyValue(name));
  const key = `${width} ${height} ${colours.join()}`;
  if (drawn.bars?.key !== key) drawn.bars = { key, image: bars(peaks, colours, width, height) };
  const played = Math.min(Math.round(position * width), width - 1);
  context.clearRect(0, 0, width, height);
  context.globalAlpha = 0.5;
  context.drawImage(drawn.bars.image, 0, 0);
  context.globalAlpha = 1;
  if (played > 0) context.drawImage(drawn.bars.image, 0, 0, played, height, 0, 0, played, height);
  context.fillStyle = style.getPropertyValue("--text");
  context.fillRect(played, 0, scale, height);
}

function bars(peaks: WaveformPeaks, colours: readonly string[], width: number, height: number): HTMLCanvasElement {
  const image = document.createElement("canvas");
  image.width = width;
  image.height = height;
  const context = image.getContext("2d");
  if (!context) return image;
  const lane = height / 2;
  for (const [index, values] of [peaks.caller, peaks.agent].entries()) {
    context.fillStyle = colours[index] ?? "";
    for (let x = 0; x < width; x += 1) {
      const from = Math.floor((x / width) * values.length);
      const until = Math.max(from + 1, Math.floor(((x + 1) / width) * values.length));
      let loudest = 0;
      for (let at = from; at < until; at += 1) loudest = Math.max(loudest, values[at] ?? 0);
      const half = Math.max(0.5, (loudest * lane) / 2);
      context.fillRect(x, (index + 0.5) * lane - half, 1, 2 * half);
    }
  }
  return image;
}
