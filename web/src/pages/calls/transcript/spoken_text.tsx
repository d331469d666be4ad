/** What was said, word by word: the word that is played stands out, and a click on one plays from there. */

import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import type { Schemas } from "../../../api/client";
import type { Playback } from "../recording/playback";
import { RedactedText } from "./redacted_text";

interface Props {
  item: Schemas["TranscriptItem"];
  /** The item is the one that is played. */
  current: boolean;
  playback: Playback | null;
}

export function SpokenText({ item, current, playback }: Props) {
  const words = item.content.trim().split(/\s+/);
  const starts = item.wordStartsMs;
  if (playback === null || starts?.length !== words.length) {
    return (
      <p>
        <RedactedText text={item.content} />
      </p>
    );
  }
  return <TimedText words={words} starts={starts} current={current} playback={playback} />;
}

interface TimedProps {
  words: readonly string[];
  /** The beginning of each, ms. */
  starts: readonly number[];
  current: boolean;
  playback: Playback;
}

function TimedText({ words, starts, current, playback }: TimedProps) {
  const paragraph = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    const words = paragraph.current?.children;
    if (!current || !words) return;
    let marked: Element | undefined;
    const mark = (word: Element | undefined) => {
      if (word === marked) return;
      marked?.classList.remove("word-current");
      word?.classList.add("word-current");
      marked = word;
    };
    // Without rendering: the position changes with each frame.
    const stop = effect(() => mark(words[lastBegun(starts, playback.position.value * 1000)]));
    return () => {
      stop();
      mark(undefined);
    };
  }, [current, starts, playback]);
  useEffect(() => {
    // The head of the entry has a button for the keyboard.
    const seek = (event: MouseEvent) => {
      const word = event.target instanceof Element ? event.target.closest(".word") : null;
      const start = word?.parentElement ? starts[[...word.parentElement.children].indexOf(word)] : undefined;
      if (start !== undefined && getSelection()?.isCollapsed !== false) playback.seek(start / 1000);
    };
    const element = paragraph.current;
    element?.addEventListener("click", seek);
    return () => element?.removeEventListener("click", seek);
  }, [starts, playback]);
  return (
    <p ref={paragraph}>
      {words.flatMap((word, index) => [
        index > 0 ? " " : null,
        <span key={index} class="word">
          <RedactedText text={word} />
        </span>,
      ])}
    </p>
  );
}

/** The index of the last word that began by then; -1 before the first. A browser seeks to a little less than asked. */
function lastBegun(starts: readonly number[], ms: number): number {
  return starts.findLastIndex((start) => start <= ms + 1);
}
