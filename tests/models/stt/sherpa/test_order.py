"""Which turns a model for whole turns hears first, and what others notice of one that fails."""

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
class Held:
    """A turn at which the model's thread stops until it may go on."""

    reached: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)

    def wanted(self) -> bool:
        self.reached.set()
        self.may_go_on.wait(20)
        return False


@pytest.fixture
def held(offline: OfflineSpeechToText) -> Iterator[Held]:
    held = Held()
    offline.submit([], 8000, None, held.wanted, lambda _text, _error: None)
    assert held.reached.wait(20)
    yield held
    held.may_go_on.set()


def cannot_say() -> bool:
    raise RuntimeError("who asks?")


async def test_turns_that_somebody_waits_for_are_heard_before_words_meanwhile(
    offline: OfflineSpeechToText, held: Held
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
    streaming: SherpaSpeechToText, offline: OfflineSpeechToText, held: Held
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


async def test_a_call_that_cannot_take_its_words_ends_no_other(offline: OfflineSpeechToText) -> None:
    told: list[threading.Event] = [threading.Event(), threading.Event()]

    def words(partial: str) -> None:
        told[0].set()
        raise RuntimeError("no room for words")

    def answer(text: str, error: ModelError | None) -> None:
        told[1].set()
        raise RuntimeError("nobody is there")

    broken = offline.open(rate=8000, language="en", on_words=words)
    feed(broken, tones("ADG CBG", 8000))
    assert await asyncio.to_thread(told[0].wait, 20)
    offline.submit([tones("AB", 8000)], 8000, None, lambda: True, answer)
    assert await asyncio.to_thread(told[1].wait, 20)
    assert await asyncio.wait_for(offline.transcribe([tones("C", 8000)], 8000, None), 20) == "C"
    assert await asyncio.wait_for(broken.end_turn(), 20) == "adg cbg"
    broken.close()


async def test_who_cannot_say_whether_it_is_wanted_hears_of_it(offline: OfflineSpeechToText) -> None:
    said: list[ModelError | None] = []
    told = threading.Event()

    def answer(text: str, error: ModelError | None) -> None:
        said.append(error)
        told.set()

    offline.submit([tones("AB", 8000)], 8000, None, cannot_say, answer)
    assert await asyncio.to_thread(told.wait, 20)
    assert "who asks?" in str(said[0])
