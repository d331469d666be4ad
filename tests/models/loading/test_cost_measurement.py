"""The measurement of the CPU cost of loaded models."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from media.audio_port import Samples
from models.end_of_turn.lexical import LexicalEndOfTurn
from models.loading.capacity_forecast import ModelCosts
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from models.loading.cost_measurement import measure_costs
from models.protocols import LanguageModel, SpeechToText, TextToSpeech
from models.rule_based.responder import ExtractiveResponder
from models.runtime.worker_threads import WorkerThreads
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.stt.sherpa.speed_measurement import SttSpeed
from models.stt.two_pass import Transcriber, TwoPassSpeechToText
from models.tts.cache import CachingTextToSpeech, SpeechCache
from models.tts.espeak.text_to_speech import EspeakTextToSpeech
from models.tts.flite.text_to_speech import FliteTextToSpeech
from models.tts.speed import TtsSpeed
from tests.fakes.scripted_call import ScriptedStt, ScriptedTts


def catalogue(stt: SpeechToText, llm: LanguageModel, tts: TextToSpeech) -> Catalogue:
    info = LanguageModelInfo(language_model_id(llm.name), llm.name, "builtin", 4096, True)
    return Catalogue(stt, {info: llm}, [tts], LexicalEndOfTurn())


async def measure(models: Catalogue, language: str | None = None) -> ModelCosts:
    return await asyncio.to_thread(measure_costs, models, language)


async def test_remote_and_negligible_models_are_not_measured() -> None:
    speeds = await measure(catalogue(ScriptedStt(), ExtractiveResponder(), ScriptedTts()))
    assert speeds.is_free


async def test_the_built_in_recognizer_and_voice_are_timed_with_a_sentence(
    recognizer: PocketsphinxSpeechToText, flite: FliteTextToSpeech
) -> None:
    speeds = await measure(catalogue(recognizer, ExtractiveResponder(), CachingTextToSpeech(flite, SpeechCache())))
    assert speeds.stt is not None
    assert speeds.tts is not None
    assert 0.01 < speeds.stt.factor(1) < 2
    assert 0.001 < speeds.tts.factor < 2
    assert speeds.tts.threads == 1
    assert speeds.eot is None, "words alone cost nothing"


async def test_the_list_of_recognizers_has_the_measured_factor(
    recognizer: PocketsphinxSpeechToText, flite: FliteTextToSpeech
) -> None:
    models = catalogue(recognizer, ExtractiveResponder(), flite)
    assert [each.real_time_factor for each in models.speech_recognizers()] == [None]
    speeds = await measure(models)
    assert speeds.stt is not None
    assert [each.real_time_factor for each in models.speech_recognizers()] == [speeds.stt.factor(1)]


async def test_the_measured_voice_is_that_of_the_language(espeak: EspeakTextToSpeech) -> None:
    speeds = await measure(catalogue(ScriptedStt(), ExtractiveResponder(), espeak), "de")
    assert speeds.tts is not None
    assert speeds.tts.name == "espeak-ng"


class OfflineStt:
    """An offline recognizer for the second pass; it gets no audio here."""

    name = "better"
    speed = SttSpeed({1: 0.13, 4: 0.12})

    async def transcribe(self, blocks: Sequence[Samples], rate: int, language: str | None) -> str:
        return ""


async def test_both_recognizers_of_a_second_pass_are_measured(recognizer: PocketsphinxSpeechToText) -> None:
    both = TwoPassSpeechToText(
        TwoPassSpeechToText(recognizer, OfflineStt()), cast(Transcriber, SimpleNamespace(name="elsewhere"))
    )
    speeds = await measure(catalogue(both, ExtractiveResponder(), ScriptedTts()))
    assert speeds.stt is not None
    assert (speeds.stt.name, speeds.stt.threads) == ("pocketsphinx", recognizer.threads)
    assert 0.01 < speeds.stt.factor(1) < 2
    assert speeds.stt_second is not None
    assert (speeds.stt_second.name, speeds.stt_second.factors) == ("better", {1: 0.13, 4: 0.12})


async def test_of_several_recognizers_the_slowest_counts() -> None:
    names = {"quick": 0.01, "slow": 0.2, "usual": 0.1}
    ears = {name: ScriptedStt() for name in names}
    for name, factor in names.items():
        cast(Any, ears[name]).name = name
        cast(Any, ears[name]).speed = SttSpeed({1: factor})
    info = LanguageModelInfo(language_model_id("x"), "x", "builtin", 4096, True)
    by_language: dict[str, SpeechToText] = {"de": ears["slow"], "fr": ears["usual"]}
    models = Catalogue(ears["quick"], {info: ExtractiveResponder()}, [ScriptedTts()], LexicalEndOfTurn(), by_language)
    slowest, french = await measure(models), await measure(models, "fr")
    assert slowest.stt is not None and slowest.stt.name == "slow"
    assert french.stt is not None and french.stt.name == "usual"


def test_other_work_does_not_count_as_the_recognizers() -> None:
    workers = WorkerThreads(2, "test")
    done = threading.Event()

    class Job:
        def step(self) -> bool:
            work(time.thread_time)
            done.set()
            return False

    def work(clock: Callable[[], float]) -> None:
        until_s = clock() + 0.05
        while clock() < until_s:
            pass

    before_s = workers.cpu_time_s()
    work(time.thread_time)
    assert workers.cpu_time_s() - before_s < 0.02
    workers.submit(Job())
    done.wait(10)
    assert workers.cpu_time_s() - before_s >= 0.05
    workers.close()


async def test_a_models_own_measurement_counts() -> None:
    ears = ScriptedStt()
    cast(Any, ears).speed = SimpleNamespace(real_time_factor={1: 0.2, 4: 0.1})
    cast(Any, ears).threads = 2
    voice = ScriptedTts()
    cast(Any, voice).speed = TtsSpeed(real_time_factor=0.15, first_sentence_ms=90, concurrency=3)
    speeds = await measure(catalogue(ears, ExtractiveResponder(), voice))
    assert speeds.stt is not None
    assert (speeds.stt.factors, speeds.stt.threads) == ({1: 0.2, 4: 0.1}, 2)
    assert speeds.tts is not None
    assert (speeds.tts.factor, speeds.tts.threads) == (pytest.approx(0.15), 3)
