"""Offline models: alone, and as the second pass after a streaming one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from config.errors import ModelError
from media.audio_port import Samples
from models.stt.sherpa.loader import open_recognizer
from models.stt.sherpa.offline_model import OfflineSpeechToText, split_at_pauses, whisper_language
from models.stt.sherpa.streaming_model import SherpaSpeechToText
from models.stt.sherpa.upsampling import RATE
from models.stt.two_pass import TwoPassSpeechToText
from tests.models.stt.sherpa.conftest import feed, installed, no_words
from tests.models.stt.sherpa.tiny_models import tones


class ControlledSecondPass:
    """A second pass that answers on demand. `asked` has the length of each turn."""

    name = "second"

    def __init__(self, answer: str | Exception = "second") -> None:
        self.answer = answer
        self.asked: list[int] = []
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def transcribe(self, blocks: Sequence[Samples], rate: int, language: str | None) -> str:
        self.asked.append(sum(len(block) for block in blocks))
        self.is_asked.set()
        await self.may_answer.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("rate", [8000, 16000])
async def test_turns_in_a_batch_are_recognized_as_each_alone(offline: OfflineSpeechToText, rate: int) -> None:
    letters = ["ABDE", "C", "ADG CBG", "", "A C A C B B D G A"]
    turns = [[tones(each, rate)] if each else [] for each in letters]
    alone = [await offline.transcribe(turn, rate, None) for turn in turns]
    together = await asyncio.gather(*(offline.transcribe(turn, rate, "en") for turn in turns))
    assert together == alone == ["ABDF", "C", "ADG CBG", "", "A C A CBBDG A"]


async def test_an_offline_model_gives_interim_text_and_continues_after_a_pause(
    offline: OfflineSpeechToText,
) -> None:
    heard = threading.Event()
    partials: list[str] = []

    def on_words(partial: str) -> None:
        partials.append(partial)
        heard.set()

    stream = offline.open(rate=8000, language="en", on_words=on_words)
    feed(stream, tones("AB", 8000))
    assert partials == []
    feed(stream, tones("DC", 8000))
    assert await asyncio.to_thread(heard.wait, 20)
    assert stream.partial() == partials[-1] == "abd"
    assert await stream.flush() == stream.partial() == "abd c"
    feed(stream, tones("G", 8000))
    assert await stream.end_turn() == "abd cg"
    assert stream.partial() == "" == await stream.end_turn()
    feed(stream, tones("AB", 8000))
    stream.reset()
    assert await stream.end_turn() == ""
    stream.close()
    with pytest.raises(ModelError):
        await stream.flush()


async def test_the_second_pass_gives_the_text_and_the_first_the_partial_words(
    streaming: SherpaSpeechToText, offline: OfflineSpeechToText
) -> None:
    words: list[str] = []
    both = TwoPassSpeechToText(streaming, offline, timeout_s=20)
    stream = both.open(rate=8000, language="en", on_words=words.append, hot_words=["abf"])
    feed(stream, tones("CBE", 8000))
    assert await stream.flush() == "CBF"
    feed(stream, tones("D", 8000))
    assert await stream.end_turn() == "CBFD"
    assert words[-1] == "cbed"
    assert both.name == "transducer+sense-voice" and both.languages == ("en",)
    stream.close()


async def test_a_late_or_failing_second_pass_leaves_the_first_ones_text(streaming: SherpaSpeechToText) -> None:
    second = ControlledSecondPass()
    stream = TwoPassSpeechToText(streaming, second, timeout_s=0.01).open(rate=8000, language=None, on_words=no_words)
    second.may_answer.clear()
    feed(stream, tones("AB", 8000))
    assert await stream.end_turn() == "ab"
    second.may_answer.set()
    second.answer = ModelError("out of memory")
    feed(stream, tones("CB", 8000))
    assert await stream.end_turn() == "cb"
    stream.close()


async def test_without_words_there_is_no_second_pass(streaming: SherpaSpeechToText) -> None:
    second = ControlledSecondPass()
    stream = TwoPassSpeechToText(streaming, second).open(rate=8000, language=None, on_words=no_words)
    feed(stream, np.zeros(8000, np.int16))
    assert await stream.flush() == "" == await stream.end_turn()
    feed(stream, tones("AB", 8000))
    stream.reset()
    assert await stream.end_turn() == ""
    assert second.asked == []
    stream.close()


async def test_the_second_pass_runs_once_when_only_silence_follows_a_pause(streaming: SherpaSpeechToText) -> None:
    second = ControlledSecondPass()
    stream = TwoPassSpeechToText(streaming, second).open(rate=8000, language=None, on_words=no_words)
    sound = tones("AB", 8000)
    feed(stream, sound)
    assert await stream.flush() == "second"
    feed(stream, np.zeros(2000, np.int16))
    assert await stream.end_turn() == "second"
    assert second.asked == [len(sound)]
    stream.close()


async def test_a_second_pass_begun_in_a_pause_is_reused_at_the_end_of_the_turn(
    streaming: SherpaSpeechToText,
) -> None:
    second = ControlledSecondPass()
    second.may_answer.clear()
    stream = TwoPassSpeechToText(streaming, second, timeout_s=20).open(rate=8000, language=None, on_words=no_words)
    feed(stream, tones("AB", 8000))
    guess = asyncio.ensure_future(stream.flush())
    await second.is_asked.wait()
    guess.cancel()
    finish = asyncio.ensure_future(stream.end_turn())
    await asyncio.sleep(0)
    second.may_answer.set()
    assert await finish == "second" and len(second.asked) == 1
    stream.close()


async def test_a_turn_longer_than_a_minute_keeps_the_first_passes_text(streaming: SherpaSpeechToText) -> None:
    second = ControlledSecondPass()
    stream = TwoPassSpeechToText(streaming, second).open(rate=8000, language=None, on_words=no_words)
    feed(stream, np.zeros(8000 * 61, np.int16), 8000)
    feed(stream, tones("AB", 8000))
    assert await stream.end_turn() == "ab" and second.asked == []
    stream.close()


def test_a_long_turn_is_cut_where_it_is_quietest() -> None:
    sound = np.ones(60 * RATE, np.float32)
    sound[22 * RATE : 23 * RATE] = sound[44 * RATE : 45 * RATE] = 0
    parts = list(split_at_pauses(sound))
    assert [round(len(part) / RATE, 2) for part in parts] == [22.05, 22.0, 15.95]
    assert sum(len(part) for part in parts) == len(sound)


@pytest.mark.parametrize(
    ("tag", "name"), [("de-CH", "de"), ("EN_us", "en"), ("nb", "no"), ("fr", ""), ("", ""), (None, ""), ("no", "no")]
)
def test_whisper_gets_only_language_codes_that_it_knows(tag: str | None, name: str) -> None:
    assert whisper_language(tag, ["en", "de", "no"]) == name


async def test_a_nemo_transducer_recognizes_several_turns(tiny_folder: Path) -> None:
    store, parakeet = await asyncio.to_thread(installed, tiny_folder, "parakeet", "sherpa-onnx/nemo-transducer")
    model = await asyncio.to_thread(open_recognizer, store, parakeet)
    assert isinstance(model, OfflineSpeechToText)
    texts = await asyncio.gather(*(model.transcribe([tones(each, 8000)], 8000, "en") for each in ("ABDE", "C", "CBG")))
    assert texts == ["ABDE", "C", "CBG"]
    await asyncio.to_thread(model.close)


async def test_whisper_uses_the_language_of_each_call_or_detects_it(tiny_folder: Path) -> None:
    store, whisper = await asyncio.to_thread(installed, tiny_folder, "whisper", "sherpa-onnx/whisper", ("*",))
    model = await asyncio.to_thread(open_recognizer, store, whisper)
    assert isinstance(model, OfflineSpeechToText)
    sound = [tones("AB", 8000)]
    languages = ["en-GB", "de", None, "tlh", "en"]
    texts = await asyncio.gather(*(model.transcribe(sound, 8000, language) for language in languages))
    assert texts == ["hello", "hallo", "hallo", "hallo", "hello"]
    await asyncio.to_thread(model.close)
    with pytest.raises(ModelError):
        await model.transcribe(sound, 8000, None)
