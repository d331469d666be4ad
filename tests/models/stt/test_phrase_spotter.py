"""Spotting of phrases, tested on pocketsphinx with real speech through a telephone line, in noise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest

from calls.answer_detection.phrases.languages import spotted_phrases
from config.errors import ModelError
from media.audio_port import Samples
from models.protocols import SpotsPhrases
from models.runtime.worker_threads import WorkerThreads
from models.stt.pocketsphinx.bindings import Decoder, model_path
from models.stt.pocketsphinx.decoder_pool import DecoderPool
from models.stt.pocketsphinx.dither import WidebandInput
from models.stt.pocketsphinx.phrase_spotter import PocketsphinxSpotter
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from tests.models.conftest import Caller

PHRASES = tuple(spotted_phrases("en"))
ANNOUNCEMENT = "we are sorry the number you have dialed is not in service please check the number and dial again"


def noisy(samples: Samples, ratio_db: float = 20) -> Samples:
    """Speech with white noise under it."""
    rms = np.sqrt((samples.astype(np.float64) ** 2).mean())
    noise = np.random.default_rng(1).standard_normal(len(samples)) * rms * 10 ** (-ratio_db / 20)
    return (samples + noise).clip(-32768, 32767).astype(np.int16)


def spotted(recognizer: PocketsphinxSpeechToText, samples: Samples, rate: int) -> list[str]:
    found: list[str] = []
    spotter = recognizer.open_spotter(rate=rate, phrases=PHRASES, on_phrase=found.append)
    for start in range(0, len(samples), rate // 50):
        spotter.feed(samples[start : start + rate // 50])
        spotter.wait_searched()
    spotter.close()
    spotter.feed(samples)
    return found


def test_the_phrases_of_an_announcement_are_spotted_in_noise(
    recognizer: PocketsphinxSpeechToText, caller: Caller
) -> None:
    assert isinstance(recognizer, SpotsPhrases)
    for samples, rate in ((caller.line(ANNOUNCEMENT), 8000), (caller.voice(ANNOUNCEMENT), 16_000)):
        assert "is not in service" in spotted(recognizer, noisy(samples), rate)


@pytest.mark.parametrize("text", [
    "i am not available right now can you call me back later",
    "sorry what was your name again i can not hear you very well",
    "do you want to leave a message he is in the office tomorrow morning",
])  # fmt: skip
def test_nothing_is_spotted_in_what_people_say(recognizer: PocketsphinxSpeechToText, caller: Caller, text: str) -> None:
    assert spotted(recognizer, noisy(caller.line(text)), 8000) == []


def test_the_dictionary_has_all_words_of_the_phrases() -> None:
    with (model_path() / "cmudict-en-us.dict").open() as lines:
        known = {line.split()[0] for line in lines}
    assert {word for phrase in PHRASES for word in phrase.split()} <= known


def test_another_rate_is_refused(recognizer: PocketsphinxSpeechToText) -> None:
    with pytest.raises(ValueError, match="44100 Hz"):
        recognizer.open_spotter(rate=44_100, phrases=PHRASES, on_phrase=print)


class FailingDecoder:
    """A decoder that cannot decode."""

    freed = False

    def start(self, channel_mean: str | None) -> None:
        """Begins."""

    def process(self, samples: Samples) -> None:
        raise ModelError("pocketsphinx could not decode")

    def free(self) -> None:
        self.freed = True


def test_a_fault_ends_spotting_alone_and_frees_the_decoder() -> None:
    decoder, workers = FailingDecoder(), WorkerThreads(1, "spotter")
    pool = DecoderPool(lambda: cast(Decoder, decoder), 0, 1)
    spotter = PocketsphinxSpotter(workers, pool, WidebandInput(), 16_000, PHRASES, print)
    for _ in range(3):
        spotter.feed(np.ones(16_000, np.int16))
        spotter.wait_searched()
    spotter.close()
    workers.close()
    assert decoder.freed


def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds, for at most 10 s."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class SearchingDecoder:
    """A decoder that finds nothing, and waits in each search until it may go on."""

    def __init__(self) -> None:
        self.searching, self.may_go_on = threading.Event(), threading.Event()

    def start(self, channel_mean: str | None) -> None:
        """Begins."""

    def process(self, samples: Samples) -> None:
        self.searching.set()
        assert self.may_go_on.wait(10)

    def hypothesis(self) -> str:
        return ""

    def end(self) -> None:
        """Ends."""


def test_a_spotter_that_is_closed_during_a_search_returns_its_decoder_and_passes_on_what_it_waits_for() -> None:
    decoder, workers = SearchingDecoder(), WorkerThreads(2, "spotter")
    pool = DecoderPool(lambda: cast(Decoder, decoder), 0, 1)
    first, second, third = (
        PocketsphinxSpotter(workers, pool, WidebandInput(), 16_000, PHRASES, print) for _ in range(3)
    )
    first.feed(np.ones(16_000, np.int16))
    assert decoder.searching.wait(10)
    for waiting in (second, third):
        waiting.feed(np.ones(16_000, np.int16))
    until(lambda: len(pool._waiting) == 2)
    second.close()
    first.close()
    decoder.searching.clear()
    decoder.may_go_on.set()
    assert decoder.searching.wait(10), "the third has the decoder"
    third.close()
    until(lambda: len(pool._idle) == 1)
    workers.close()
