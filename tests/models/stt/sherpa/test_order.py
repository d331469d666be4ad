"""The order of turns in an offline model, and the isolation of errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from config.errors import ModelError
from models.stt.sherpa.offline_model import OfflineSpeechToText
from models.stt.sherpa.streaming_model import SherpaSpeechToText
from models.stt.two_pass import TwoPassSpeechToText
from tests.models.stt.sherpa.conftest import feed, no_words
from tests.models.stt.sherpa.tiny_models import tones


@dataclass
class BlockingTurn:
    """A turn that blocks the model's thread until it is released."""

    reached: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)

    def is_wanted(self) -> bool:
        self.reached.set()
        self.may_go_on.wait(20)
        return False


@pytest.fixture
def held(offline: OfflineSpeechToText) -> Iterator[BlockingTurn]:
    held = BlockingTurn()
    offline.submit([], 8000, None, held.is_wanted, lambda _text, _error: None)
    assert held.reached.wait(20)
    yield held
    held.may_go_on.set()


def cannot_say() -> bool:
    raise RuntimeError("who asks?")


async def test_awaited_turns_are_recognized_before_interim_ones(
    offline: OfflineSpeechToText, held: BlockingTurn
) -> None:
    order: list[str] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer(text: str, error: ModelError | None) -> None:
        order.append(text)
        loop.call_soon_threadsafe(done.set)

    stream = offline.open(rate=8000, language="en", on_words=no_words)
    offline.submit([tones("AB", 8000)], 8000, "en", lambda: True, answer)
    feed(stream, tones("C", 8000))
    finish = asyncio.ensure_future(stream.end_turn())
    finish.add_done_callback(lambda future: order.append(future.result()))
    await asyncio.sleep(0)
    held.may_go_on.set()
    await asyncio.gather(finish, done.wait())
    assert order == ["c", "AB"]
    stream.close()


async def test_the_wait_is_the_age_of_the_oldest_turn(
    streaming: SherpaSpeechToText, offline: OfflineSpeechToText, held: BlockingTurn
) -> None:
    both = TwoPassSpeechToText(streaming, offline)
    assert offline.expected_wait_s() == 0 == both.expected_wait_s()
    texts = [asyncio.ensure_future(offline.transcribe([tones("AB", 8000)], 8000, None))]
    await asyncio.sleep(0.05)
    texts.append(asyncio.ensure_future(offline.transcribe([tones("C", 8000)], 8000, None)))
    await asyncio.sleep(0)
    assert offline.expected_wait_s() >= 0.05
    assert both.expected_wait_s() >= 0.05
    held.may_go_on.set()
    assert await asyncio.gather(*texts) == ["AB", "C"]
    assert offline.expected_wait_s() == 0


async def test_an_error_of_a_callback_affects_no_other_call(offline: OfflineSpeechToText) -> None:
    called: list[threading.Event] = [threading.Event(), threading.Event()]

    def words(partial: str) -> None:
        called[0].set()
        raise RuntimeError("no room for words")

    def answer(text: str, error: ModelError | None) -> None:
        called[1].set()
        raise RuntimeError("the listener is gone")

    broken = offline.open(rate=8000, language="en", on_words=words)
    feed(broken, tones("ADG CBG", 8000))
    assert await asyncio.to_thread(called[0].wait, 20)
    offline.submit([tones("AB", 8000)], 8000, None, lambda: True, answer)
    assert await asyncio.to_thread(called[1].wait, 20)
    assert await asyncio.wait_for(offline.transcribe([tones("C", 8000)], 8000, None), 20) == "C"
    assert await asyncio.wait_for(broken.end_turn(), 20) == "adg cbg"
    broken.close()


async def test_an_error_of_is_wanted_is_the_result_of_its_turn(offline: OfflineSpeechToText) -> None:
    said: list[ModelError | None] = []
    called = threading.Event()

    def answer(text: str, error: ModelError | None) -> None:
        said.append(error)
        called.set()

    offline.submit([tones("AB", 8000)], 8000, None, cannot_say, answer)
    assert await asyncio.to_thread(called.wait, 20)
    assert "who asks?" in str(said[0])
