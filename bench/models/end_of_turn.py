"""Measures the end-of-turn models: what an answer of Smart Turn costs, and how often each of them is right.

    python -m bench.models.end_of_turn [cost | accuracy]

Sentences spoken by flite are judged at their end and at the word in their middle, after some silence, each with a
quiet room's noise; the words are those that the recognizer has by then. Synthetic voices are not people: their melody
says less about whether more is coming, and a sentence that is cut off does not slow down before the cut.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import soxr

from media.audio_port import Samples
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.tts.flite.bindings import VOICES, FliteLibrary
from models.turn_detection.lexical import COMPLETE, DANGLING, LexicalEndOfTurn
from models.turn_detection.log_mel import log_mel
from models.turn_detection.smart_turn import Network, model_path

SENTENCES = (
    "I would like to book a table for two people tomorrow evening.",
    "My phone number is five five five, one two three four.",
    "Could you tell me what time you open on Saturday?",
    "I am calling because my internet connection has stopped working.",
    "Please cancel the appointment that I made for next Monday.",
    "Yes, that works for me, thank you very much.",
    "I want to change the delivery address of my last order.",
    "How much does it cost to ship a small parcel to Canada?",
    "We are looking for a room with a view of the garden.",
    "My daughter has had a fever since yesterday afternoon.",
    "Can I pay the bill with my credit card over the phone?",
    "The number on the invoice is seven three nine two.",
    "I think there is a mistake in my last statement.",
    "Let me speak to somebody in the sales department.",
    "Where can I find the instructions for the coffee machine?",
    "No, I have not received the package until now.",
    "The car makes a strange noise when I turn to the left.",
    "Do you have any vegetarian dishes on the menu?",
    "I will be there at about half past seven.",
    "She told me that the meeting was moved to Thursday.",
)
SILENCES_MS = (50, 200, 400)
THRESHOLDS = (0.1, 0.5)
BEFORE_MS = 300
"""What a call keeps from before the beginning of speech."""
NOISE = 20.0
"""Standard deviation in steps of 16 bits (-64 dB)."""
RUNS = 60
LINE_HZ = (300, 3400)


@dataclass(frozen=True)
class SpokenSentence:
    """A sentence, or its first half; `complete` says which. `int16[n]` at 16 kHz without silence at its end."""

    complete: bool
    sound: Samples


@dataclass(frozen=True)
class Verdict:
    """What was said about one sound after some silence. The rules say None without words."""

    line: str
    silence_ms: int
    complete: bool
    sound: float
    words: float | None

    @property
    def both(self) -> float:
        """As Smart Turn's stream answers."""
        sure = self.words is not None and (self.words <= DANGLING or self.words >= COMPLETE)
        return self.words if sure and self.words is not None else self.sound


JUDGES: dict[str, Callable[[Verdict], float]] = {
    "Smart Turn alone": lambda verdict: verdict.sound,
    "lexical rules": lambda verdict: verdict.words or 0.0,
    "Smart Turn, overruled by words that are sure": lambda verdict: verdict.both,
}


def spoken() -> Iterator[SpokenSentence]:
    """All sentences in all voices, complete and cut behind the word in the middle."""
    library = FliteLibrary()
    for voice in VOICES:
        for text in SENTENCES:
            ctypes.CDLL(None).srand(1)
            utterance = library.speak(text, voice, 1.0)
            ends = [token.end_s for token in utterance.tokens if token.end_s]
            loud = np.flatnonzero(np.abs(utterance.samples.astype(np.int32)) > 200)
            yield SpokenSentence(True, utterance.samples[: loud[-1] + 1])
            yield SpokenSentence(False, utterance.samples[: int(ends[len(ends) // 2 - 1] * utterance.rate)])


def telephone(sound: Samples) -> Samples:
    """What is left at 8 kHz of a sound at 16 kHz: 300 to 3400 Hz."""
    spectrum = np.fft.rfft(sound.astype(np.float64))
    hz = np.fft.rfftfreq(len(sound), 1 / 16000)
    spectrum[(hz < LINE_HZ[0]) | (hz > LINE_HZ[1])] = 0
    narrow = soxr.resample(np.fft.irfft(spectrum, len(sound)), 16000, 8000)
    line: Samples = np.clip(narrow, -32768, 32767).astype(np.int16)
    return line


def heard(sound: Samples, rate: int) -> Samples:
    """The sound after `BEFORE_MS` and before the longest silence, all with noise."""
    room = np.random.default_rng(len(sound)).normal(0, NOISE, len(sound) + (BEFORE_MS + SILENCES_MS[-1]) * rate // 1000)
    start = BEFORE_MS * rate // 1000
    room[start : start + len(sound)] += sound
    return np.clip(np.rint(room), -32768, 32767).astype(np.int16)


async def judged(recognizer: PocketsphinxSpeechToText, network: Network, each: SpokenSentence) -> list[Verdict]:
    """The sound in full and through a telephone line, after each of the silences."""
    rules, verdicts = LexicalEndOfTurn(), []
    for line, rate, sound in (("16 kHz", 16000, each.sound), ("telephone", 8000, telephone(each.sound))):
        whole, fed = heard(sound, rate), 0
        ear = recognizer.open(rate=rate, language="en", on_words=lambda words: None)
        for silence_ms in SILENCES_MS:
            end = len(whole) - (SILENCES_MS[-1] - silence_ms) * rate // 1000
            ear.feed(whole[fed:end])
            fed = end
            text = await ear.flush()
            p = network.probability(whole[:end], rate)
            verdicts.append(
                Verdict(line, silence_ms, each.complete, p, rules.probability(text, "en") if text else None)
            )
        ear.close()
    return verdicts


def accuracy(verdicts: list[Verdict]) -> Iterator[dict[str, object]]:
    """A row for each judge, line and silence: at each threshold the complete sentences that were ended, the others that
    were cut off, and what was right, %."""
    for line in dict.fromkeys(verdict.line for verdict in verdicts):
        for silence_ms in SILENCES_MS:
            chosen = [verdict for verdict in verdicts if (verdict.line, verdict.silence_ms) == (line, silence_ms)]
            complete = np.array([verdict.complete for verdict in chosen])
            for name, judge in JUDGES.items():
                p = np.array([judge(verdict) for verdict in chosen])
                row: dict[str, object] = {"line": line, "silence_ms": silence_ms, "judge": name}
                for threshold in THRESHOLDS:
                    ended = p >= threshold
                    parts = ended[complete].mean(), ended[~complete].mean(), (ended == complete).mean()
                    row[f"at {threshold}: ended / cut off / right, %"] = [round(100 * float(part)) for part in parts]
                yield row


def cost(threads: int) -> Iterator[dict[str, object]]:
    """What features and whole answers take for 3 and 8 s of telephone sound; `cpu_ms` includes all threads."""
    network = Network(model_path(), threads)
    for seconds in (3, 8):
        sound = np.random.default_rng(0).normal(0, 1000, seconds * 8000).astype(np.int16)
        wide = soxr.resample(sound, 8000, 16000)
        features, _ = timed(partial(log_mel, wide))
        answer, cpu_ms = timed(partial(network.probability, sound, 8000))
        yield {
            "threads": threads,
            "sound_s": seconds,
            "features_ms": features,
            "answer_ms": answer,
            "cpu_ms": cpu_ms,
            "answers_per_core_s": round(1000 / cpu_ms, 1),
        }


def timed(work: Callable[[], object]) -> tuple[dict[str, float], float]:
    """p50 and p95 of it, and the CPU that one takes, ms."""
    work()
    took, used = [], time.process_time()
    for _ in range(RUNS):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    used = (time.process_time() - used) * 1000 / RUNS
    p50, p95 = np.percentile(took, [50, 95])
    return {"p50": round(float(p50), 1), "p95": round(float(p95), 1)}, round(used, 1)


async def measure_accuracy() -> None:
    """Print the rows."""
    recognizer, network = await asyncio.to_thread(PocketsphinxSpeechToText), Network(model_path())
    utterances = list(spoken())
    verdicts = [verdict for each in utterances for verdict in await judged(recognizer, network, each)]
    await asyncio.to_thread(recognizer.close)
    print(json.dumps({"utterances": len(utterances), "voices": list(VOICES)}))
    for row in accuracy(verdicts):
        print(json.dumps(row))


def main() -> None:
    """The command."""
    wanted = sys.argv[1:] or ["cost", "accuracy"]
    print(json.dumps({"cores": os.cpu_count(), "model": model_path().name}))
    if "cost" in wanted:
        for row in (*cost(1), *cost(2)):
            print(json.dumps(row))
    if "accuracy" in wanted:
        asyncio.run(measure_accuracy())


if __name__ == "__main__":
    main()
