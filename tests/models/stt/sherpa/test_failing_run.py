"""Calls that were decoded together in a run that failed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from config.errors import ModelError
from models.stt.sherpa.stream import SherpaStream
from models.stt.sherpa.streaming_model import SherpaSpeechToText
from tests.models.stt.sherpa.conftest import feed, no_words
from tests.models.stt.sherpa.tiny_models import tones


class Failing:
    """A recognizer of sherpa-onnx whose runs fail, after the streams in them have been spoilt: the next one of several
    streams, and each with that piece of `poisoned` that was the first to be decoded together with others. A run begins
    when it `may_run`."""

    def __init__(self, recognizer: Any) -> None:
        self._recognizer = recognizer
        self.next_fails = False
        self.poisoned: SherpaStream | None = None
        self.poisoned_at: int | None = None
        self.failures: list[int] = []
        self.runs = threading.Event()
        self.may_run = threading.Event()
        self.may_run.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recognizer, name)

    def decode_streams(self, streams: list[Any]) -> None:
        self.runs.set()
        self.may_run.wait(20)
        self._recognizer.decode_streams(streams)
        if self._fails(streams) or (self.next_fails and len(streams) > 1):
            self.next_fails = False
            self.failures.append(len(streams))
            raise RuntimeError("out of memory")

    def _fails(self, streams: list[Any]) -> bool:
        if (stream := self.poisoned) is None or not any(each is stream.recognizer_stream for each in streams):
            return False
        if self.poisoned_at is None and len(streams) > 1:
            self.poisoned_at = stream._chunks
        return stream._chunks == self.poisoned_at


@pytest.fixture
def failing(streaming: SherpaSpeechToText) -> Failing:
    return Failing(streaming._recognizer)


@pytest.fixture
def model(streaming: SherpaSpeechToText, failing: Failing) -> Iterator[SherpaSpeechToText]:
    model = SherpaSpeechToText(
        "failing", failing, streaming._tokens, languages=("en",), supports_hotwords=False, threads=1
    )
    yield model
    model.close()


async def together(failing: Failing, streams: list[SherpaStream], letters: list[str]) -> list[str | BaseException]:
    """The results of streams that are decoded in the same runs."""
    failing.runs.clear()
    failing.may_run.clear()
    feed(streams[0], np.zeros(8000, np.int16))
    assert await asyncio.to_thread(failing.runs.wait, 20)
    for stream, each in zip(streams, letters, strict=True):
        feed(stream, tones(each, 8000))
    texts = [asyncio.ensure_future(stream.end_turn()) for stream in streams]
    await asyncio.sleep(0)
    failing.may_run.set()
    return await asyncio.wait_for(asyncio.gather(*texts, return_exceptions=True), 20)


async def test_turns_that_were_decoded_with_a_failing_one_are_retried(
    model: SherpaSpeechToText, failing: Failing
) -> None:
    partials: list[str] = []
    streams = [model.open(rate=8000, language=None, on_words=partials.append) for _ in range(4)]
    failing.poisoned = streams[2]
    texts = await together(failing, streams, ["ABDE", "CBE", "AB", "ADG CBG"])
    assert texts[:2] + texts[3:] == ["abde", "cbe", "adg cbg"]
    assert isinstance(texts[2], ModelError)
    assert len(failing.failures) == 2 and failing.failures[0] > failing.failures[1] == 1
    failing.poisoned = None
    feed(streams[2], tones("CB", 8000))
    assert await streams[2].end_turn() == "cb"
    for stream in streams:
        stream.close()


async def test_words_do_not_grow_again_after_a_run_that_failed(model: SherpaSpeechToText, failing: Failing) -> None:
    partials: list[str] = []
    streams = [
        model.open(rate=8000, language=None, on_words=partials.append),
        *(model.open(rate=8000, language=None, on_words=no_words) for _ in range(2)),
    ]
    for stream in streams:
        feed(stream, tones("ADG CBG", 8000))
    await asyncio.gather(*(stream.drain() for stream in streams))
    failing.next_fails = True
    assert await together(failing, streams, ["A", "A", "A"]) == ["adg cbg a"] * 3
    assert failing.failures
    assert len(partials) == len(set(partials))
    for stream in streams:
        stream.close()


async def test_the_audio_of_a_long_turn_is_not_kept_for_a_retry(model: SherpaSpeechToText, failing: Failing) -> None:
    long, short = (model.open(rate=8000, language=None, on_words=no_words) for _ in range(2))
    for _ in range(4):
        feed(long, np.zeros(64_000, np.int16), 8000)
        await long.drain()
    assert not long._retry_audio
    failing.next_fails = True
    texts = await together(failing, [short, long], ["AB", "C"])
    assert texts[0] == "ab" and isinstance(texts[1], ModelError)
    for stream in (long, short):
        stream.close()
