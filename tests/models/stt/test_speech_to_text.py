"""Conformance of recognizers, tested on pocketsphinx with real speech through a telephone line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from config.errors import ModelError
from media.audio_port import Samples
from models.protocols import SpeechToText, SpeechToTextStream, TimesWords
from models.stt.pocketsphinx.bindings import Decoder, clean_words, load_library, model_path
from models.stt.pocketsphinx.decoder_pool import DecoderPool
from models.stt.pocketsphinx.narrowband_adaptation import NarrowbandInput
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from tests.models.conftest import Caller

SENTENCES = [
    "what are your opening hours",
    "what is your address",
    "do you have parking",
    "do you accept credit cards",
    "can you say that again please",
    "i would like to make an appointment",
    "do you treat children",
    "what is your name",
    "yes please",
    "okay goodbye",
]
"""Heard right however flite speaks them."""
SETTLED = ["can i speak to a person", "is there a doctor available tomorrow"]
"""Sentences of which the first pass and the search through its lattice think differently, spoken by `slt`."""
FRAME = 160


def no_words(partial: str) -> None:
    """For streams whose partial texts do not matter."""


def feed(stream: SpeechToTextStream, samples: Samples, frame: int = FRAME) -> None:
    for start in range(0, len(samples), frame):
        stream.feed(samples[start : start + frame])


@pytest.fixture
def stream(recognizer: SpeechToText) -> Iterator[SpeechToTextStream]:
    stream = recognizer.open(rate=8000, language="en-US", on_words=no_words)
    yield stream
    stream.close()


@pytest.mark.parametrize("text", SENTENCES)
async def test_a_sentence_is_recognized_word_for_word(stream: SpeechToTextStream, caller: Caller, text: str) -> None:
    feed(stream, caller.line(text))
    assert await stream.end_turn() == text


async def test_one_stream_recognizes_turn_after_turn(stream: SpeechToTextStream, caller: Caller) -> None:
    for text in SENTENCES[:4]:
        feed(stream, caller.line(text))
        assert await stream.end_turn() == text


async def test_another_voice_is_recognized_too(stream: SpeechToTextStream, caller: Caller) -> None:
    feed(stream, caller.line("what are your opening hours", "slt"))
    assert await stream.end_turn() == "what are your opening hours"


async def test_wide_band_audio_is_recognized(recognizer: SpeechToText, caller: Caller) -> None:
    stream = recognizer.open(rate=16000, language=None, on_words=no_words)
    feed(stream, caller.voice("can you say that again please"), 320)
    assert await stream.end_turn() == "can you say that again please"
    stream.close()


async def test_words_come_while_the_caller_speaks(recognizer: SpeechToText, caller: Caller) -> None:
    partials: list[str] = []
    heard = threading.Event()

    def on_words(partial: str) -> None:
        partials.append(partial)
        heard.set()

    stream = recognizer.open(rate=8000, language=None, on_words=on_words)
    sound = caller.line("i would like to make an appointment")
    feed(stream, sound[: len(sound) * 3 // 4])
    assert await asyncio.to_thread(heard.wait, 20)
    assert stream.partial() != ""
    feed(stream, sound[len(sound) * 3 // 4 :])
    assert await stream.end_turn() == "i would like to make an appointment"
    assert stream.partial() == ""
    assert all(partials) and all(one != other for one, other in pairwise(partials))
    stream.close()


async def test_audio_before_reset_is_not_recognized(stream: SpeechToTextStream, caller: Caller) -> None:
    feed(stream, caller.line("what is your address"))
    stream.reset()
    feed(stream, caller.line("do you have parking"))
    assert await stream.end_turn() == "do you have parking"


@pytest.mark.parametrize("silence", [0, 1, 160, 2800, 16_000])
@pytest.mark.parametrize("text", SETTLED)
async def test_flushed_text_is_final_when_only_silence_follows(
    stream: SpeechToTextStream, caller: Caller, text: str, silence: int
) -> None:
    feed(stream, caller.line(text, "slt"))
    settled = await stream.flush()
    feed(stream, np.zeros(silence, np.int16))
    assert await stream.end_turn() == settled == text


async def test_audio_after_flush_continues_the_turn(stream: SpeechToTextStream, caller: Caller) -> None:
    feed(stream, caller.line("what is your address"))
    assert await stream.flush() == "what is your address"
    feed(stream, caller.line("do you have parking"))
    assert await stream.end_turn() == "what is your address do you have parking"
    feed(stream, caller.line("yes please"))
    assert await stream.end_turn() == "yes please"


async def test_flushed_text_is_discarded_by_reset(stream: SpeechToTextStream, caller: Caller) -> None:
    feed(stream, caller.line("what is your address"))
    assert await stream.flush() == "what is your address"
    stream.reset()
    feed(stream, caller.line("do you have parking"))
    assert await stream.flush() == "do you have parking"
    assert await stream.end_turn() == "do you have parking"


async def test_flush_without_audio_returns_no_text(stream: SpeechToTextStream) -> None:
    assert await stream.flush() == "" == await stream.end_turn()


async def test_silence_and_no_audio_have_no_words(stream: SpeechToTextStream) -> None:
    assert await stream.end_turn() == ""
    feed(stream, np.zeros(8000, np.int16))
    assert await stream.end_turn() == ""


async def test_the_size_of_the_blocks_makes_no_difference(stream: SpeechToTextStream, caller: Caller) -> None:
    feed(stream, caller.line("what is your name"), 77)
    assert await stream.end_turn() == "what is your name"


async def test_changing_a_fed_array_makes_no_difference(stream: SpeechToTextStream, caller: Caller) -> None:
    sound = caller.line("yes please")
    buffer = np.zeros(FRAME, np.int16)
    for start in range(0, len(sound) - FRAME, FRAME):
        buffer[:] = sound[start : start + FRAME]
        stream.feed(buffer)
    assert await stream.end_turn() == "yes please"


async def test_more_callers_than_decoders_and_threads_are_all_recognized(
    recognizer: SpeechToText, caller: Caller
) -> None:
    streams = [recognizer.open(rate=8000, language=None, on_words=no_words) for _ in SENTENCES]
    sounds = [caller.line(text) for text in SENTENCES]
    for start in range(0, max(map(len, sounds)), FRAME):
        for stream, sound in zip(streams, sounds, strict=True):
            stream.feed(sound[start : start + FRAME])
    assert await asyncio.gather(*(stream.end_turn() for stream in streams)) == SENTENCES
    for stream in streams:
        stream.close()


async def test_closing_in_the_middle_of_work_ends_the_wait(recognizer: SpeechToText, caller: Caller) -> None:
    stream = recognizer.open(rate=8000, language=None, on_words=no_words)
    feed(stream, np.tile(caller.line("what is your address"), 3))
    waiting = asyncio.ensure_future(stream.end_turn())
    await asyncio.sleep(0)
    stream.close()
    stream.close()
    stream.feed(np.zeros(FRAME, np.int16))
    stream.reset()
    with pytest.raises(ModelError):
        await waiting
    with pytest.raises(ModelError):
        await stream.end_turn()


async def test_a_cancelled_request_gets_no_result(stream: SpeechToTextStream, caller: Caller) -> None:
    feed(stream, caller.line("what is your address"))
    waiting = asyncio.ensure_future(stream.end_turn())
    await asyncio.sleep(0)
    waiting.cancel()
    feed(stream, caller.line("do you have parking"))
    assert await stream.end_turn() == "do you have parking"


async def test_an_error_of_on_words_ends_its_own_turn_alone(recognizer: SpeechToText, caller: Caller) -> None:
    def on_words(partial: str) -> None:
        raise RuntimeError("listener is broken")

    broken = recognizer.open(rate=8000, language=None, on_words=on_words)
    sound = recognizer.open(rate=8000, language=None, on_words=no_words)
    for stream in (broken, sound):
        feed(stream, caller.line("what is your address"))
    with pytest.raises(ModelError, match="listener is broken"):
        await broken.end_turn()
    assert await sound.end_turn() == "what is your address"
    assert await broken.end_turn() == ""
    broken.close()
    sound.close()


def test_another_rate_is_rejected(recognizer: SpeechToText) -> None:
    with pytest.raises(ValueError, match="44100"):
        recognizer.open(rate=44100, language=None, on_words=no_words)


async def test_a_closed_recognizer_ends_all_waits(caller: Caller) -> None:
    recognizer = await asyncio.to_thread(PocketsphinxSpeechToText, threads=1, decoders=1)
    streams = [recognizer.open(rate=8000, language=None, on_words=no_words) for _ in range(3)]
    for stream in streams:
        feed(stream, np.tile(caller.line("what is your address"), 2))
    waits = [asyncio.ensure_future(stream.end_turn()) for stream in streams]
    await asyncio.sleep(0)
    await asyncio.to_thread(recognizer.close)
    results = await asyncio.gather(*waits, return_exceptions=True)
    assert all(isinstance(result, ModelError) for result in results)


def test_no_state_of_a_caller_stays_in_the_decoder(caller: Caller) -> None:
    folder = model_path()
    files = {"hmm": "en-us", "lm": "en-us.lm.bin", "dict": "cmudict-en-us.dict"}
    decoder = Decoder(load_library(), {key: str(folder / name) for key, name in files.items()})

    def hear(sound: Samples) -> tuple[str, str]:
        decoder.start(None)
        decoder.process(sound)
        decoder.end()
        return decoder.hypothesis(), decoder.channel_mean()

    one, another = caller.voice("what are your opening hours"), caller.voice("can i talk to a human being", "slt")
    first = hear(one)
    assert hear(another) != first
    assert hear(one) == first
    decoder.free()


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("<s> the(2) cat <sil> sat(3) </s>", "the cat sat"),
        ("++UM++ [NOISE] yes [SPEECH]", "yes"),
        ("<sil>", ""),
        ("a(b) it's", "a(b) it's"),
    ],
)
def test_noise_marks_are_removed_from_the_hypothesis(raw: str, clean: str) -> None:
    assert clean_words(raw) == clean


def test_folding_keeps_the_band_and_mirrors_it_softly() -> None:
    """A tone of 1 kHz keeps its level; its image at 7 kHz is 10 dB lower."""
    tone = (10000 * np.sin(2 * np.pi * 1000 * np.arange(8000) / 8000)).astype(np.int16)
    spectrum = np.abs(np.fft.rfft(NarrowbandInput().push(tone)[800:8800] * np.hanning(8000)))
    frequency = np.fft.rfftfreq(8000, 1 / 16000)
    level = {hz: 20 * np.log10(spectrum[np.abs(frequency - hz) < 20].max()) for hz in (1000, 7000)}
    assert level[1000] - level[7000] == pytest.approx(10, abs=0.5)


def test_folding_does_not_depend_on_the_blocks() -> None:
    noise = np.random.default_rng(1).integers(-9000, 9000, 1000).astype(np.int16)
    folding = NarrowbandInput()
    pieces = [folding.push(piece) for piece in np.split(noise, [1, 7, 160, 500, 501])]
    assert np.array_equal(np.concatenate(pieces), NarrowbandInput().push(noise))


class _DecoderWithoutModel(Decoder):
    """A decoder without a model, for the pool's rules alone."""

    def __init__(self) -> None:
        self.freed = False

    def free(self) -> None:
        self.freed = True


def _pool(ready: int, limit: int) -> DecoderPool:
    make: Callable[[], Decoder] = _DecoderWithoutModel
    return DecoderPool(make, ready, limit)


def test_a_pool_grows_to_its_limit_and_then_makes_callers_wait() -> None:
    pool = _pool(1, 2)
    woken: list[str] = []
    first, second = pool.acquire(lambda: woken.append("1")), pool.acquire(lambda: woken.append("2"))
    assert first is not None and second is not None
    assert pool.acquire(lambda: woken.append("3")) is None
    assert woken == []
    pool.release(first)
    assert woken == ["3"]
    assert pool.acquire(lambda: woken.append("4")) is first


def test_a_discarded_decoder_is_replaced() -> None:
    pool = _pool(1, 1)
    woken: list[str] = []
    first = pool.acquire(lambda: None)
    assert isinstance(first, _DecoderWithoutModel)
    assert pool.acquire(lambda: woken.append("free")) is None
    pool.discard(first)
    assert first.freed and woken == ["free"]
    assert pool.acquire(lambda: None) is not None


async def test_the_beginnings_of_words_count_from_the_first_sample_of_the_turn(
    recognizer: SpeechToText, caller: Caller
) -> None:
    stream = recognizer.open(rate=8000, language="en", on_words=no_words)
    assert isinstance(stream, TimesWords)
    first, second = caller.line("what is your address"), caller.line("do you have parking")
    for _ in range(2):  # the next turn counts anew
        feed(stream, first)
        await stream.flush()
        feed(stream, second)
        assert await stream.end_turn() == "what is your address do you have parking"
        starts = stream.word_starts_s()
        assert len(starts) == 8 and list(starts) == sorted(starts)
        assert 0 < starts[0] < 0.5  # 0.2 s of silence are around each sentence
        assert 0 <= starts[4] - len(first) / 8000 < 0.6
        assert starts[7] < (len(first) + len(second)) / 8000 - 0.4
    feed(stream, np.tile(first, 5))
    assert len(first) * 5 / 8000 > 6 and "address" in await stream.end_turn()
    assert list(stream.word_starts_s()) == [], "utterances of over 6 s have none"
    feed(stream, second)
    await stream.end_turn()
    assert 0 < stream.word_starts_s()[0] < 0.5
    stream.close()
