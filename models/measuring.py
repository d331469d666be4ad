"""How quick the loaded models are: what they measured themselves at their start, else what they take for a sentence.
Models elsewhere take no cores of this machine and are not measured."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Final

import numpy as np

from config.errors import ModelError
from media.ports import Samples
from models.budget import Hearing, Judging, Speaking, Speeds, Writing
from models.catalogue import Catalogue
from models.espeak_tts import PROCESSES, EspeakTextToSpeech
from models.fallback import FallbackLanguageModel
from models.flite_tts import FliteTextToSpeech
from models.llama.forecast import StepTimes
from models.pocketsphinx_stt import PocketsphinxSpeechToText
from models.protocols import EndOfTurn, LanguageModel, SpeechToText, TextToSpeech, VoiceSettings
from models.smart_turn import SmartTurn
from models.speech_cache import Remembering
from models.tts_speed import TtsSpeed

_TEXT: Final = "Thank you for calling, I would like to know when you open on Sunday."
_HEARD_S: Final = 2.5
_RATE: Final = 8000
_TRIALS: Final = 3


def speeds_of(models: Catalogue, language: str | None = None) -> Speeds:
    """Of the models that calls get which name none, in a language. Takes up to a second: not for the event loop."""
    synthesizer, voice = models.voice(None, language)
    speaking, sound = _speaking(synthesizer, voice)
    return Speeds(
        _hearing(models.stt(language), sound), _judging(models.eot), _writing(first_asked(models.llm(None))), speaking
    )  # fmt: skip


def first_asked(model: LanguageModel) -> LanguageModel:
    """The model itself; of a chain the one that answers unless it fails."""
    return first_asked(model.models[0]) if isinstance(model, FallbackLanguageModel) else model


def _hearing(model: SpeechToText, sound: Samples) -> Hearing | None:
    factors = getattr(getattr(model, "speed", None), "real_time_factor", None)
    if isinstance(factors, Mapping) and factors:
        return Hearing(model.name, dict(factors), getattr(model, "threads", 1))
    if not isinstance(model, PocketsphinxSpeechToText):
        return None
    heard = (sound if len(sound) else _noise())[: int(_HEARD_S * _RATE)]
    return Hearing(model.name, {1: _takes_to_hear_s(model, heard) * _RATE / len(heard)}, max(2, os.cpu_count() or 2))


def _noise() -> Samples:
    """Where no voice is here to speak."""
    return np.random.default_rng(1).normal(0, 3000, int(_HEARD_S * _RATE)).astype(np.int16)


def _takes_to_hear_s(model: SpeechToText, sound: Samples) -> float:
    """Seconds of a core: no other thread has something to do yet."""

    async def hear() -> float:
        stream = model.open(rate=_RATE, language=None, on_words=lambda _: None)
        try:
            began = time.process_time()
            stream.feed(sound)
            await stream.finish()
            return time.process_time() - began
        finally:
            stream.close()

    return asyncio.run(hear())


def _judging(model: EndOfTurn) -> Judging | None:
    return Judging(model.name, model.takes_ms / 1000) if isinstance(model, SmartTurn) else None


def _writing(model: LanguageModel) -> Writing | None:
    """Of a model that runs here; the memory tells how many calls it remembers."""
    steps = getattr(getattr(model, "speed", None), "steps", None)
    talks = getattr(getattr(model, "memory", None), "talks", None)
    if not isinstance(steps, Mapping) or not isinstance(talks, int):
        return None
    return Writing(model.name, StepTimes(steps), talks)


def _speaking(model: TextToSpeech, voice: str) -> tuple[Speaking | None, Samples]:
    """The voice's speed, and the sentence that it spoke."""
    inner = model.voice if isinstance(model, Remembering) else model
    measured = getattr(inner, "speed", None)
    if isinstance(measured, TtsSpeed):
        return Speaking(model.name, measured.real_time_factor, measured.at_once), np.zeros(0, np.int16)
    if not isinstance(inner, FliteTextToSpeech | EspeakTextToSpeech):
        return None, np.zeros(0, np.int16)
    took, sounds = [], []
    for _ in range(_TRIALS):
        began = time.perf_counter()
        try:
            sounds.append(asyncio.run(inner.synthesize(_TEXT, VoiceSettings(voice, 1.0, 0.5, _RATE))).samples)
        except ModelError:
            return None, np.zeros(0, np.int16)
        took.append(time.perf_counter() - began)
    threads = 1 if isinstance(inner, FliteTextToSpeech) else PROCESSES
    return Speaking(model.name, min(took) * _RATE / max(1, len(sounds[0])), threads), sounds[0]
