"""Benchmark: what the loaded models take of this machine's cores, as they measured it when they were loaded, else by
trial with a sentence. Each engine says by `measured` which of the two it is, or that it takes no cores of this
machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from config.errors import ModelError
from media.audio_port import Samples
from models.llm.fallback import FallbackLanguageModel
from models.llm.llama.batching.latency_forecast import StepTimes
from models.loading.capacity import EotCost, LlmCost, ModelCosts, SttCost, TtsCost
from models.loading.catalogue import Catalogue
from models.protocols import (
    EndOfTurn,
    LanguageModel,
    Measured,
    SpeechToText,
    TextToSpeech,
    TimedSpeechToText,
    TimedTextToSpeech,
    VoiceSettings,
)
from models.stt.two_pass import TwoPassSpeechToText
from models.tts.cache import CachingTextToSpeech
from models.tts.speed import TtsSpeed

_TEXT: Final = "Thank you for calling, I would like to know when you open on Sunday."
_HEARD_S: Final = 2.5
_RATE: Final = 8000
_TRIALS: Final = 3


def measure_costs(models: Catalogue, language: str | None = None) -> ModelCosts:
    """Of the models that calls get which name none, in a language; with None, of the slowest recognizer, whatever
    languages it is for. Takes a second or two: not for the event loop."""
    synthesizer, voice = models.voice(None, language)
    tts, sound = _tts_cost(synthesizer, voice)
    recognizers = models.recognizers if language is None else [models.stt(language)]
    stt, second = max((_recognizers(each, sound) for each in recognizers), key=_work)
    return ModelCosts(stt, _eot_cost(models.eot), _llm_cost(primary_model(models.llm(None))), tts, second)


def primary_model(model: LanguageModel) -> LanguageModel:
    """The model itself; of a chain the one that answers unless it fails."""
    return primary_model(model.models[0]) if isinstance(model, FallbackLanguageModel) else model


def _recognizers(model: SpeechToText, sound: Samples) -> tuple[SttCost | None, SttCost | None]:
    """What hears while the caller speaks, and what hears the turn again."""
    second_passes = None
    while isinstance(model, TwoPassSpeechToText):
        factors = _factors(model.offline)
        if factors:
            second_passes = SttCost(model.offline.name, factors, getattr(model.offline, "threads", 1))
        model = model.streaming
    return _stt_cost(model, sound), second_passes


def _work(heard: tuple[SttCost | None, SttCost | None]) -> float:
    """For a second of one caller's sound."""
    return sum(each.factor(1) for each in heard if each is not None)


def _factors(model: object) -> dict[int, float]:
    """As the model has measured itself; empty when it has not."""
    factors = getattr(getattr(model, "speed", None), "real_time_factor", None)
    return dict(factors) if isinstance(factors, Mapping) else {}


def _stt_cost(model: SpeechToText, sound: Samples) -> SttCost | None:
    factors = _factors(model)
    if factors:
        return SttCost(model.name, factors, getattr(model, "threads", 1))
    if _measured(model) != "by trial" or not isinstance(model, TimedSpeechToText):
        return None
    heard = (sound if len(sound) else _noise())[: int(_HEARD_S * _RATE)]
    took_s = min(_stt_core_seconds(model, model.worked_s, heard) for _ in range(_TRIALS))
    return SttCost(model.name, {1: took_s * _RATE / len(heard)}, model.threads)


def _measured(model: object) -> Measured | None:
    """None for an engine that does not say; every engine of this package does."""
    measured: Measured | None = getattr(model, "measured", None)
    return measured


def _noise() -> Samples:
    """Where no voice is here to speak."""
    return np.random.default_rng(1).normal(0, 3000, int(_HEARD_S * _RATE)).astype(np.int16)


def _stt_core_seconds(model: SpeechToText, worked_s: Callable[[], float], sound: Samples) -> float:
    """Seconds of a core, by the clocks of its threads: what other models and calls do meanwhile does not count."""

    async def hear() -> float:
        stream = model.open(rate=_RATE, language=None, on_words=lambda _: None)
        try:
            began = worked_s()
            stream.feed(sound)
            await stream.end_turn()
            return worked_s() - began
        finally:
            stream.close()

    return asyncio.run(hear())


def _eot_cost(model: EndOfTurn) -> EotCost | None:
    takes_ms = getattr(model, "takes_ms", None)
    return EotCost(model.name, takes_ms / 1000) if _measured(model) == "at start" and takes_ms is not None else None


def _llm_cost(model: LanguageModel) -> LlmCost | None:
    """Of a model that runs here; the memory tells how many calls it remembers."""
    steps = getattr(getattr(model, "speed", None), "steps", None)
    sequences = getattr(getattr(model, "memory", None), "sequences", None)
    if not isinstance(steps, Mapping) or not isinstance(sequences, int):
        return None
    return LlmCost(model.name, StepTimes(steps), sequences)


def _tts_cost(model: TextToSpeech, voice: str) -> tuple[TtsCost | None, Samples]:
    """The voice's speed, and the sentence that it spoke."""
    inner = model.voice if isinstance(model, CachingTextToSpeech) else model
    measured = getattr(inner, "speed", None)
    if isinstance(measured, TtsSpeed):
        return TtsCost(model.name, measured.real_time_factor, measured.at_once), np.zeros(0, np.int16)
    if _measured(inner) != "by trial" or not isinstance(inner, TimedTextToSpeech):
        return None, np.zeros(0, np.int16)
    took, sounds = [], []
    for _ in range(_TRIALS):
        began = time.perf_counter()
        try:
            sounds.append(asyncio.run(inner.synthesize(_TEXT, VoiceSettings(voice, 1.0, 0.5, _RATE))).samples)
        except ModelError:
            return None, np.zeros(0, np.int16)
        took.append(time.perf_counter() - began)
    return TtsCost(model.name, min(took) * _RATE / max(1, len(sounds[0])), inner.at_once), sounds[0]
