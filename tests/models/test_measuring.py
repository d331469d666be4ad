"""How quick the loaded models are, as they are really here."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from models.budget import Speeds
from models.catalogue import Catalogue, LanguageModelInfo, language_model_id
from models.end_of_turn import LexicalEndOfTurn
from models.espeak_tts import EspeakTextToSpeech
from models.flite_tts import FliteTextToSpeech
from models.measuring import speeds_of
from models.pocketsphinx_stt import PocketsphinxSpeechToText
from models.protocols import LanguageModel, SpeechToText, TextToSpeech
from models.responder import ExtractiveResponder
from models.speech_cache import Remembering, SpeechCache
from models.tts_speed import TtsSpeed
from tests.fakes_calls import ScriptedEars, ScriptedVoice


def catalogue(stt: SpeechToText, llm: LanguageModel, tts: TextToSpeech) -> Catalogue:
    info = LanguageModelInfo(language_model_id(llm.name), llm.name, "builtin", 4096, True)
    return Catalogue(stt, {info: llm}, [tts], LexicalEndOfTurn())


async def measured(models: Catalogue, language: str | None = None) -> Speeds:
    return await asyncio.to_thread(speeds_of, models, language)


async def test_models_that_are_elsewhere_or_do_nothing_are_not_measured() -> None:
    speeds = await measured(catalogue(ScriptedEars(), ExtractiveResponder(), ScriptedVoice()))
    assert speeds.cost_nothing


async def test_the_recognizer_and_the_voice_in_the_box_are_measured_with_what_they_are_for(
    recognizer: PocketsphinxSpeechToText, flite: FliteTextToSpeech
) -> None:
    speeds = await measured(catalogue(recognizer, ExtractiveResponder(), Remembering(flite, SpeechCache())))
    assert speeds.hearing is not None
    assert speeds.speaking is not None
    assert 0.01 < speeds.hearing.factor(1) < 2
    assert 0.001 < speeds.speaking.factor < 2
    assert speeds.speaking.threads == 1
    assert speeds.judging is None, "words alone cost nothing"


async def test_the_voice_is_that_of_the_language(espeak: EspeakTextToSpeech) -> None:
    speeds = await measured(catalogue(ScriptedEars(), ExtractiveResponder(), espeak), "de")
    assert speeds.speaking is not None
    assert speeds.speaking.name == "espeak-ng"


async def test_what_a_model_has_measured_itself_counts() -> None:
    ears = ScriptedEars()
    cast(Any, ears).speed = SimpleNamespace(real_time_factor={1: 0.2, 4: 0.1})
    cast(Any, ears).threads = 2
    voice = ScriptedVoice()
    cast(Any, voice).speed = TtsSpeed(real_time_factor=0.15, first_sentence_ms=90, at_once=3)
    speeds = await measured(catalogue(ears, ExtractiveResponder(), voice))
    assert speeds.hearing is not None
    assert (speeds.hearing.factors, speeds.hearing.threads) == ({1: 0.2, 4: 0.1}, 2)
    assert speeds.speaking is not None
    assert (speeds.speaking.factor, speeds.speaking.threads) == (pytest.approx(0.15), 3)
