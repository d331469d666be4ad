"""End-of-turn models: CPU time of Smart Turn, and the accuracy of each model.

    python -m bench.models.end_of_turn [cost | accuracy]

Sentences spoken by flite are classified at their end and after the word in their middle, after some silence, each with
background noise; the words are those that the recognizer has by then. Synthetic voices are not people: their prosody
is less informative about the end of a turn, and a sentence that is cut off does not slow down before the cut.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import soxr

from media.audio_port import Samples
from models.end_of_turn.lexical import COMPLETE, INCOMPLETE, LexicalEndOfTurn
from models.end_of_turn.log_mel import log_mel
from models.end_of_turn.smart_turn import SmartTurnNetwork, model_path
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.tts.flite.bindings import VOICES, FliteLibrary

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
"""Audio before the beginning of speech that a call keeps."""
NOISE = 20.0
"""Standard deviation of the noise in 16-bit steps (-64 dB)."""
RUNS = 60
TELEPHONE_BAND_HZ = (300, 3400)


@dataclass(frozen=True)
class SpokenSentence:
    """A sentence (`complete`), or its first half. `int16[n]` at 16 kHz without silence at its end."""

    complete: bool
    samples: Samples


@dataclass(frozen=True)
class Prediction:
    """The end-of-turn probabilities for one sentence after some silence: of Smart Turn (`acoustic`), and of the lexical
    rules, which is None without words."""

    band: str
    silence_ms: int
    complete: bool
    acoustic: float
    lexical: float | None

    @property
    def combined(self) -> float:
        """The probability that Smart Turn's stream returns: that of the lexical rules if they are certain."""
        certain = self.lexical is not None and (self.lexical <= INCOMPLETE or self.lexical >= COMPLETE)
        return self.lexical if certain and self.lexical is not None else self.acoustic


MODELS: dict[str, Callable[[Prediction], float]] = {
    "Smart Turn alone": lambda prediction: prediction.acoustic,
    "lexical rules": lambda prediction: prediction.lexical or 0.0,
    "Smart Turn, overruled by certain lexical rules": lambda prediction: prediction.combined,
}


def spoken_sentences() -> Iterator[SpokenSentence]:
    """All sentences in all voices, complete and cut after the word in the middle."""
    library = FliteLibrary()
    for voice in VOICES:
        for text in SENTENCES:
            ctypes.CDLL(None).srand(1)
            utterance = library.speak(text, voice, 1.0)
            ends = [token.end_s for token in utterance.tokens if token.end_s]
            loud = np.flatnonzero(np.abs(utterance.samples.astype(np.int32)) > 200)
            yield SpokenSentence(True, utterance.samples[: loud[-1] + 1])
            yield SpokenSentence(False, utterance.samples[: int(ends[len(ends) // 2 - 1] * utterance.rate)])


def telephone_band(samples: Samples) -> Samples:
    """Audio at 16 kHz reduced to 300 to 3400 Hz at 8 kHz."""
    spectrum = np.fft.rfft(samples.astype(np.float64))
    hz = np.fft.rfftfreq(len(samples), 1 / 16000)
    spectrum[(hz < TELEPHONE_BAND_HZ[0]) | (hz > TELEPHONE_BAND_HZ[1])] = 0
    narrow = soxr.resample(np.fft.irfft(spectrum, len(samples)), 16000, 8000)
    clipped: Samples = np.clip(narrow, -32768, 32767).astype(np.int16)
    return clipped


def with_noise(samples: Samples, rate: int) -> Samples:
    """The audio between `BEFORE_MS` and the longest silence, all with noise."""
    length = len(samples) + (BEFORE_MS + SILENCES_MS[-1]) * rate // 1000
    mixed = np.random.default_rng(len(samples)).normal(0, NOISE, length)
    start = BEFORE_MS * rate // 1000
    mixed[start : start + len(samples)] += samples
    return np.clip(np.rint(mixed), -32768, 32767).astype(np.int16)


async def predict(
    recognizer: PocketsphinxSpeechToText, network: SmartTurnNetwork, sentence: SpokenSentence
) -> list[Prediction]:
    """The predictions in full band and in the telephone band, after each of the silences."""
    rules, predictions = LexicalEndOfTurn(), []
    for band, rate, samples in (
        ("16 kHz", 16000, sentence.samples),
        ("telephone", 8000, telephone_band(sentence.samples)),
    ):
        audio, fed = with_noise(samples, rate), 0
        stream = recognizer.open(rate=rate, language="en", on_words=lambda words: None)
        for silence_ms in SILENCES_MS:
            end = len(audio) - (SILENCES_MS[-1] - silence_ms) * rate // 1000
            stream.feed(audio[fed:end])
            fed = end
            text = await stream.flush()
            acoustic = network.probability(audio[:end], rate)
            lexical = rules.probability(text, "en") if text else None
            predictions.append(Prediction(band, silence_ms, sentence.complete, acoustic, lexical))
        stream.close()
    return predictions


def accuracy(predictions: list[Prediction]) -> Iterator[dict[str, object]]:
    """A row for each band, silence and model: at each threshold the complete sentences that were ended, the incomplete
    ones that were cut off, and the accuracy, %."""
    for band in dict.fromkeys(prediction.band for prediction in predictions):
        for silence_ms in SILENCES_MS:
            selected = [each for each in predictions if (each.band, each.silence_ms) == (band, silence_ms)]
            complete = np.array([prediction.complete for prediction in selected])
            for name, model in MODELS.items():
                p = np.array([model(prediction) for prediction in selected])
                row: dict[str, object] = {"band": band, "silence_ms": silence_ms, "model": name}
                for threshold in THRESHOLDS:
                    ended = p >= threshold
                    shares = ended[complete].mean(), ended[~complete].mean(), (ended == complete).mean()
                    row[f"at {threshold}: ended / cut off / right, %"] = [round(100 * float(share)) for share in shares]
                yield row


def cost(threads: int, runs: int) -> Iterator[dict[str, object]]:
    """Times of feature extraction and of the whole prediction for 3 and 8 s of telephone audio; `cpu_ms` is the sum
    over all threads."""
    network = SmartTurnNetwork(model_path(), threads)
    for seconds in (3, 8):
        narrow = np.random.default_rng(0).normal(0, 1000, seconds * 8000).astype(np.int16)
        wide = soxr.resample(narrow, 8000, 16000)
        features, _ = timed(partial(log_mel, wide), runs)
        prediction, cpu_ms = timed(partial(network.probability, narrow, 8000), runs)
        yield {
            "threads": threads,
            "audio_s": seconds,
            "features_ms": features,
            "prediction_ms": prediction,
            "cpu_ms": cpu_ms,
            "predictions_per_core_s": round(1000 / cpu_ms, 1),
        }


def timed(work: Callable[[], object], runs: int) -> tuple[dict[str, float], float]:
    """p50 and p95 of the elapsed times, and the mean CPU time, ms."""
    work()
    elapsed_ms, cpu_s = [], time.process_time()
    for _ in range(runs):
        began = time.perf_counter()
        work()
        elapsed_ms.append((time.perf_counter() - began) * 1000)
    cpu_ms = (time.process_time() - cpu_s) * 1000 / runs
    p50, p95 = np.percentile(elapsed_ms, [50, 95])
    return {"p50": round(float(p50), 1), "p95": round(float(p95), 1)}, round(cpu_ms, 1)


async def measure_accuracy() -> None:
    """Prints the rows."""
    recognizer, network = await asyncio.to_thread(PocketsphinxSpeechToText), SmartTurnNetwork(model_path())
    sentences = list(spoken_sentences())
    predictions = [each for sentence in sentences for each in await predict(recognizer, network, sentence)]
    await asyncio.to_thread(recognizer.close)
    print(json.dumps({"sentences": len(sentences), "voices": list(VOICES)}))
    for row in accuracy(predictions):
        print(json.dumps(row))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("cost", "accuracy"), help="by default both")
    parser.add_argument("--runs", type=int, default=RUNS, help="repetitions of each timed prediction")
    options = parser.parse_args()
    print(json.dumps({"cores": os.cpu_count(), "model": model_path().name}))
    if options.what in (None, "cost"):
        for row in (*cost(1, options.runs), *cost(2, options.runs)):
            print(json.dumps(row))
    if options.what in (None, "accuracy"):
        asyncio.run(measure_accuracy())


if __name__ == "__main__":
    main()
