"""Measures the CPU cost of the loaded models: takes the cost that a model measured when it was loaded, else times the
model with a sentence. Each engine names its `cost_source`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from config.errors import ModelError
from media.audio_port import Samples
from models.llm.llama.batching.latency_forecast import StepTimes
from models.loading.capacity_forecast import EotCost, LlmCost, ModelCosts, SttCost, TtsCost
from models.loading.catalogue import Catalogue
from models.loading.model_descriptions import measured_factors, primary_model
from models.protocols import (
    CostSource,
    EndOfTurn,
    LanguageModel,
    SpeechToText,
    TextToSpeech,
    TimedSpeechToText,
    TimedTextToSpeech,
    VoiceSettings,
)
from models.stt.two_pass import TwoPassSpeechToText
from models.tts.cache import CachingTextToSpeech
from models.tts.speed import TtsSpeed

_SENTENCE: Final = "Thank you for calling, I would like to know when you open on Sunday."
_AUDIO_S: Final = 2.5
_RATE: Final = 8000
_REPETITIONS: Final = 3


def measure_costs(models: Catalogue, language: str | None = None) -> ModelCosts:
    """The costs of the default models for `language`; for None with the slowest recognizer of any language. Takes a
    second or two: not for the event loop. The catalogue remembers the recognizers' costs for its list."""
    synthesizer, voice = models.voice(None, language)
    tts, sound = _tts_cost(synthesizer, voice)
    recognizers = models.recognizers if language is None else [models.stt(language)]
    stt_costs = {recognizer.name: _stt_costs(recognizer, sound) for recognizer in recognizers}
    models.remember_recognition({name: _core_share(costs) for name, costs in stt_costs.items() if any(costs)})
    stt, second_pass = max(stt_costs.values(), key=_core_share)
    return ModelCosts(stt, _eot_cost(models.eot), _llm_cost(primary_model(models.llm(None))), tts, second_pass)


def _stt_costs(model: SpeechToText, sound: Samples) -> tuple[SttCost | None, SttCost | None]:
    """The costs of the streaming recognizer and of the second pass."""
    second_pass = None
    while isinstance(model, TwoPassSpeechToText):
        real_time_factors = measured_factors(model.offline)
        if real_time_factors:
            second_pass = SttCost(model.offline.name, real_time_factors, getattr(model.offline, "threads", 1))
        model = model.streaming
    return _stt_cost(model, sound), second_pass


def _core_share(costs: tuple[SttCost | None, SttCost | None]) -> float:
    """Core seconds for a second of one caller's audio."""
    return sum(recognizer.factor(1) for recognizer in costs if recognizer is not None)


def _stt_cost(model: SpeechToText, sound: Samples) -> SttCost | None:
    real_time_factors = measured_factors(model)
    if real_time_factors:
        return SttCost(model.name, real_time_factors, getattr(model, "threads", 1))
    if _cost_source(model) != "timed with a sentence" or not isinstance(model, TimedSpeechToText):
        return None
    audio = (sound if len(sound) else _noise())[: int(_AUDIO_S * _RATE)]
    core_seconds = min(_stt_core_seconds(model, model.cpu_time_s, audio) for _ in range(_REPETITIONS))
    return SttCost(model.name, {1: core_seconds * _RATE / len(audio)}, model.threads)


def _cost_source(model: object) -> CostSource | None:
    """The engine's `cost_source`; None without one, but every engine of this package has it."""
    cost_source: CostSource | None = getattr(model, "cost_source", None)
    return cost_source


def _noise() -> Samples:
    """Noise, for machines without a voice."""
    return np.random.default_rng(1).normal(0, 3000, int(_AUDIO_S * _RATE)).astype(np.int16)


def _stt_core_seconds(model: SpeechToText, cpu_time_s: Callable[[], float], sound: Samples) -> float:
    """Core seconds by the CPU clocks of the model's threads, because other work on the machine must not count."""

    async def transcribe() -> float:
        stream = model.open(rate=_RATE, language=None, on_words=lambda _: None)
        try:
            started = cpu_time_s()
            stream.feed(sound)
            await stream.end_turn()
            return cpu_time_s() - started
        finally:
            stream.close()

    return asyncio.run(transcribe())


def _eot_cost(model: EndOfTurn) -> EotCost | None:
    takes_ms = getattr(model, "takes_ms", None)
    return (
        EotCost(model.name, takes_ms / 1000)
        if _cost_source(model) == "measured on load" and takes_ms is not None
        else None
    )


def _llm_cost(model: LanguageModel) -> LlmCost | None:
    """The cost of a local model, with the number of calls that its KV cache holds."""
    steps = getattr(getattr(model, "speed", None), "steps", None)
    sequences = getattr(getattr(model, "memory", None), "sequences", None)
    if not isinstance(steps, Mapping) or not isinstance(sequences, int):
        return None
    return LlmCost(model.name, StepTimes(steps), sequences)


def _tts_cost(model: TextToSpeech, voice: str) -> tuple[TtsCost | None, Samples]:
    """The cost of a voice, and the sentence that it synthesized for the measurement."""
    synthesizer = model.voice if isinstance(model, CachingTextToSpeech) else model
    speed = getattr(synthesizer, "speed", None)
    if isinstance(speed, TtsSpeed):
        return TtsCost(model.name, speed.real_time_factor, speed.concurrency), np.zeros(0, np.int16)
    if _cost_source(synthesizer) != "timed with a sentence" or not isinstance(synthesizer, TimedTextToSpeech):
        return None, np.zeros(0, np.int16)
    seconds, recordings = [], []
    for _ in range(_REPETITIONS):
        started = time.perf_counter()
        try:
            recordings.append(
                asyncio.run(synthesizer.synthesize(_SENTENCE, VoiceSettings(voice, 1.0, 0.5, _RATE))).samples
            )
        except ModelError:
            return None, np.zeros(0, np.int16)
        seconds.append(time.perf_counter() - started)
    return TtsCost(model.name, min(seconds) * _RATE / max(1, len(recordings[0])), synthesizer.concurrency), recordings[
        0
    ]
