/** Both channels of a recording, drawn from peaks: the caller above, the agent below. A click seeks. */

import { useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { t } from "../../texts";
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
  const seconds = peaks.caller.length * peaks.secondsPerPeak;

  function draw() {
    if (canvas.current) paint(canvas.current, peaks, playback.position.value / seconds);
  }
  useSignalEffect(draw);
  useEffect(() => {
    const observer = new ResizeObserver(draw);
    if (canvas.current) observer.observe(canvas.current);
    return () => observer.disconnect();
  });

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
        aria-valuenow={Math.round(playback.position.value)}
        onClick={(event) => playback.seek((event.offsetX / event.currentTarget.clientWidth) * seconds)}
        onKeyDown={move}
      />
    </div>
  );
}

function paint(canvas: HTMLCanvasElement, peaks: WaveformPeaks, position: number): void {
  const scale = devicePixelRatio;
  const [width, height] = [canvas.clientWidth, 2 * LANE_HEIGHT];
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(canvas);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  for (const [lane, values, colour] of [
    [0, peaks.caller, "--caller"],
    [1, peaks.agent, "--agent"],
  ] as const) {
    context.fillStyle = style.getPropertyValue(colour);
    const middle = lane * LANE_HEIGHT + LANE_HEIGHT / 2;
    for (let x = 0; x < width; x += 1) {
      const from = Math.floor((x / width) * values.length);
      const until = Math.max(from + 1, Math.floor(((x + 1) / width) * values.length));
      let loudest = 0;
      for (let index = from; index < until; index += 1) loudest = Math.max(loudest, values[index] ?? 0);
      const half = Math.max(0.5, (loudest * LANE_HEIGHT) / 2);
      context.globalAlpha = x / width <= position ? 1 : 0.5;
      context.fillRect(x, middle - half, 1, 2 * half);
    }
  }
  context.globalAlpha = 1;
  context.fillStyle = style.getPropertyValue("--text");
  context.fillRect(Math.min(position * width, width - 1), 0, 1, height);
}
