"""A streaming model of sherpa-onnx for many calls at once, with a small model that recognizes tones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from config.errors import ModelError
from models.protocols import SpeechToTextStream
from models.stt.sherpa.loader import open_recognizer
from models.stt.sherpa.streaming_model import SherpaSpeechToText
from tests.models.stt.sherpa.conftest import feed, installed, no_words
from tests.models.stt.sherpa.tiny_models import tones

TURNS = {
    "ABDE": "abde",
    "CBE ": "cbe",
    "ADG CBG": "adg cbg",
    "A C A C": "a c a c",
    "ABBA": "abb a",
    "CEF": "cef",
    "AB": "ab",
    " ": "",
}
"""Tones, and how they read."""


def opened(folder: Path, name: str, engine: str) -> SherpaSpeechToText:
    model = open_recognizer(*installed(folder, name, engine))
    assert isinstance(model, SherpaSpeechToText)
    return model


@pytest.fixture
def stream(streaming: SherpaSpeechToText) -> Iterator[SpeechToTextStream]:
    stream = streaming.open(rate=8000, language="en", on_words=no_words)
    yield stream
    stream.close()


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize(("letters", "text"), TURNS.items())
async def test_a_turn_is_recognized_to_its_end_at_either_rate(
    streaming: SherpaSpeechToText, letters: str, text: str, rate: int
) -> None:
    stream = streaming.open(rate=rate, language="en", on_words=no_words)
    feed(stream, tones(letters, rate, gap_ms=60)[: -60 * rate // 1000])
    assert await stream.end_turn() == text
    stream.close()


@pytest.fixture(scope="module")
def several_threads(streaming: SherpaSpeechToText) -> Iterator[SherpaSpeechToText]:
    """Three threads that decode with one network, at most three streams in each run."""
    model = SherpaSpeechToText(
        "threads",
        streaming._recognizer,
        streaming._tokens,
        languages=("en",),
        supports_hotwords=True,
        threads=3,
        max_batch=3,
    )
    yield model
    model.close()


@pytest.mark.parametrize("name", ["streaming", "several_threads"])
async def test_concurrent_calls_are_recognized_as_each_alone(name: str, request: pytest.FixtureRequest) -> None:
    streaming: SherpaSpeechToText = request.getfixturevalue(name)
    letters = list(TURNS) * 6
    streams = [streaming.open(rate=(8000, 16000)[n % 2], language=None, on_words=no_words) for n in range(len(letters))]
    sounds = [tones(each, (8000, 16000)[n % 2]) for n, each in enumerate(letters)]
    frames = [(160, 320)[n % 2] for n in range(len(letters))]
    for number in range(200):  # each call's frame after that of the others, as the tick does
        for stream, sound, frame in zip(streams, sounds, frames, strict=True):
            stream.feed(sound[number * frame : (number + 1) * frame])
    assert await asyncio.gather(*(stream.end_turn() for stream in streams)) == [TURNS[each] for each in letters]
    for stream in streams:
        stream.close()


async def test_words_come_while_the_caller_speaks(streaming: SherpaSpeechToText) -> None:
    partials: list[str] = []
    heard = threading.Event()

    def on_words(partial: str) -> None:
        partials.append(partial)
        heard.set()

    stream = streaming.open(rate=8000, language=None, on_words=on_words)
    sound = tones("ABDE CBE", 8000)
    feed(stream, sound[:8000])
    assert await asyncio.to_thread(heard.wait, 20)
    assert stream.partial() != ""
    feed(stream, sound[8000:])
    assert await stream.end_turn() == "abde cbe"
    assert stream.partial() == ""
    assert all(partials) and all(one != other for one, other in pairwise(partials))
    stream.close()


async def test_one_stream_recognizes_turn_after_turn(stream: SpeechToTextStream) -> None:
    for letters, text in TURNS.items():
        feed(stream, tones(letters, 8000))
        assert await stream.end_turn() == text


async def test_a_turn_continues_after_flush(stream: SpeechToTextStream) -> None:
    feed(stream, tones("AB", 8000))
    assert await stream.flush() == "ab"
    feed(stream, tones("DE C", 8000))
    assert await stream.flush() == "abde c"
    feed(stream, np.zeros(4000, np.int16))
    assert await stream.end_turn() == "abde c"
    feed(stream, tones("CB", 8000))
    assert await stream.end_turn() == "cb"


@pytest.mark.parametrize("silence", [0, 1, 160, 2800, 16_000])
async def test_flushed_text_is_final_when_only_silence_follows(stream: SpeechToTextStream, silence: int) -> None:
    feed(stream, tones("CBE", 8000)[:-640])
    settled = await stream.flush()
    feed(stream, np.zeros(silence, np.int16))
    assert await stream.end_turn() == settled == "cbe"


async def test_flush_does_not_wait_for_more_audio(stream: SpeechToTextStream) -> None:
    feed(stream, tones("AB", 8000))
    settled = asyncio.ensure_future(stream.flush())
    await asyncio.sleep(0)
    feed(stream, np.zeros(160, np.int16))
    assert await asyncio.wait_for(settled, 20) == "ab"
    assert await stream.end_turn() == "ab"


async def test_audio_before_reset_is_not_recognized(stream: SpeechToTextStream) -> None:
    feed(stream, tones("ABDE", 8000))
    stream.reset()
    feed(stream, tones("CB", 8000))
    assert await stream.flush() == "cb"
    stream.reset()
    assert await stream.end_turn() == ""
    feed(stream, tones("A", 8000))
    assert await stream.end_turn() == "a"


async def test_flush_without_audio_returns_no_text(stream: SpeechToTextStream) -> None:
    assert await stream.flush() == "" == await stream.end_turn()


async def test_the_size_of_the_blocks_makes_no_difference(stream: SpeechToTextStream) -> None:
    feed(stream, tones("ADG CBG", 8000), 77)
    assert await stream.end_turn() == "adg cbg"


async def test_closing_a_stream_fails_its_pending_requests(streaming: SherpaSpeechToText) -> None:
    stream = streaming.open(rate=8000, language=None, on_words=no_words)
    feed(stream, tones("AB", 8000))
    waiting = asyncio.ensure_future(stream.end_turn())
    await asyncio.sleep(0)
    stream.close()
    results = await asyncio.gather(waiting, stream.flush(), return_exceptions=True)
    assert isinstance(results[1], ModelError)
    assert results[0] == "ab" or isinstance(results[0], ModelError)
    stream.feed(tones("C", 8000))
    stream.reset()
    stream.close()


async def test_an_error_in_one_call_ends_its_turn_alone(streaming: SherpaSpeechToText) -> None:
    def break_down(partial: str) -> None:
        raise RuntimeError("no room for words")

    broken = streaming.open(rate=8000, language=None, on_words=break_down)
    sound = streaming.open(rate=8000, language=None, on_words=no_words)
    for stream in (broken, sound):
        feed(stream, tones("ABDE", 8000))
    with pytest.raises(ModelError, match="no room for words"):
        await broken.end_turn()
    assert await sound.end_turn() == "abde"
    broken._on_words = no_words
    feed(broken, tones("CB", 8000))
    assert await broken.end_turn() == "cb"
    for stream in (broken, sound):
        stream.close()


def test_an_unsupported_rate_is_rejected(streaming: SherpaSpeechToText) -> None:
    with pytest.raises(ValueError, match="44100"):
        streaming.open(rate=44100, language=None, on_words=no_words)


async def test_hot_words_affect_their_own_call_alone(streaming: SherpaSpeechToText) -> None:
    expecting: dict[str, list[str]] = {
        "abe": [],
        "Abf": ["Abf", "¿qué?"],
        "abf": ["/abf@#:", "cbe :9"],
        "abe ": ["xyz", "#1"],
    }
    streams = [
        streaming.open(rate=8000, language="en", on_words=no_words, hot_words=words) for words in expecting.values()
    ]
    for stream in streams:
        feed(stream, tones("ABE", 8000))
    texts = await asyncio.gather(*(stream.end_turn() for stream in streams))
    assert texts == [text.strip() for text in expecting]
    feed(streams[1], tones("ABE", 8000))  # in the next turn too
    assert await streams[1].end_turn() == "Abf"
    for stream in streams:
        stream.close()


async def test_a_model_without_hot_words_ignores_them(tiny_folder: Path) -> None:
    model = await asyncio.to_thread(opened, tiny_folder, "ctc", "sherpa-onnx/streaming-nemo-ctc")
    streams = [model.open(rate=8000, language="en", on_words=no_words, hot_words=["abf"]) for _ in range(3)]
    for stream, letters in zip(streams, ("ABE", "ADG CBG", "ABDE"), strict=True):
        feed(stream, tones(letters, 8000))
    assert await asyncio.gather(*(stream.end_turn() for stream in streams)) == ["abe", "adg cbg", "abde"]
    await asyncio.to_thread(model.close)


async def test_closing_a_model_closes_its_streams(tiny_folder: Path) -> None:
    model = await asyncio.to_thread(opened, tiny_folder, "transducer", "sherpa-onnx/zipformer")
    assert set(model.speed.real_time_factor) <= {1, 4, 16} and min(model.speed.real_time_factor.values()) > 0
    stream = model.open(rate=8000, language=None, on_words=no_words)
    await asyncio.to_thread(model.close)
    with pytest.raises(ModelError):
        await stream.end_turn()
    await asyncio.to_thread(model.close)


async def test_words_begin_where_their_tones_do(streaming: SherpaSpeechToText) -> None:
    stream = streaming.open(rate=8000, language="en", on_words=no_words)
    for _ in range(2):  # the next turn counts anew
        feed(stream, tones("ABC  A", 8000))  # 200 ms each
        assert await stream.end_turn() == "ab c a"
        assert stream.word_starts_s() == pytest.approx([0.0, 0.4, 1.0], abs=0.09)
    stream.close()
