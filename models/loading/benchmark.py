"""How quick the loaded models are: what they measured themselves at their start, else what they take for a sentence.
Models elsewhere take no cores of this machine and are not measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import numpy as np

from config.errors import ModelError
from media.audio_port import Samples
from models.llm.fallback import FallbackLanguageModel
from models.llm.llama.batching.latency_forecast import StepTimes
from models.loading.capacity import Hearing, Judging, Speaking, Speeds, Writing
from models.loading.catalogue import Catalogue
from models.protocols import EndOfTurn, LanguageModel, SpeechToText, TextToSpeech, VoiceSettings
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.stt.two_pass import SecondPass
from models.tts.cache import Remembering
from models.tts.espeak.text_to_speech import PROCESSES, EspeakTextToSpeech
from models.tts.flite.text_to_speech import FliteTextToSpeech
from models.tts.speed import TtsSpeed
from models.turn_detection.smart_turn import SmartTurn

_TEXT: Final = "Thank you for calling, I would like to know when you open on Sunday."
_HEARD_S: Final = 2.5
_RATE: Final = 8000
_TRIALS: Final = 3


def speeds_of(models: Catalogue, language: str | None = None) -> Speeds:
    """Of the models that calls get which name none, in a language; with None, of the slowest recognizer, whatever
    languages it is for. Takes a second or two: not for the event loop."""
    synthesizer, voice = models.voice(None, language)
    speaking, sound = _speaking(synthesizer, voice)
    ears = models.recognizers if language is None else [models.stt(language)]
    hearing, again = max((_heard(ear, sound) for ear in ears), key=_work)
    return Speeds(hearing, _judging(models.eot), _writing(first_asked(models.llm(None))), speaking, again)


def first_asked(model: LanguageModel) -> LanguageModel:
    """The model itself; of a chain the one that answers unless it fails."""
    return first_asked(model.models[0]) if isinstance(model, FallbackLanguageModel) else model


def _heard(model: SpeechToText, sound: Samples) -> tuple[Hearing | None, Hearing | None]:
    """What hears while the caller speaks, and what hears the turn again."""
    again = None
    while isinstance(model, SecondPass):
        factors = _factors(model.offline)
        if factors:
            again = Hearing(model.offline.name, factors, getattr(model.offline, "threads", 1))
        model = model.streaming
    return _hearing(model, sound), again


def _work(heard: tuple[Hearing | None, Hearing | None]) -> float:
    """For a second of one caller's sound."""
    return sum(each.factor(1) for each in heard if each is not None)


def _factors(model: object) -> dict[int, float]:
    """As the model has measured itself; empty when it has not."""
    factors = getattr(getattr(model, "speed", None), "real_time_factor", None)
    return dict(factors) if isinstance(factors, Mapping) else {}


def _hearing(model: SpeechToText, sound: Samples) -> Hearing | None:
    factors = _factors(model)
    if factors:
        return Hearing(model.name, factors, getattr(model, "threads", 1))
    if not isinstance(model, PocketsphinxSpeechToText):
        return None
    heard = (sound if len(sound) else _noise())[: int(_HEARD_S * _RATE)]
    took_s = min(_takes_to_hear_s(model, heard) for _ in range(_TRIALS))
    return Hearing(model.name, {1: took_s * _RATE / len(heard)}, model.threads)


def _noise() -> Samples:
    """Where no voice is here to speak."""
    return np.random.default_rng(1).normal(0, 3000, int(_HEARD_S * _RATE)).astype(np.int16)


def _takes_to_hear_s(model: PocketsphinxSpeechToText, sound: Samples) -> float:
    """Seconds of a core, by the clocks of its threads: what other models and calls do meanwhile does not count."""

    async def hear() -> float:
        stream = model.open(rate=_RATE, language=None, on_words=lambda _: None)
        try:
            began = model.worked_s()
            stream.feed(sound)
            await stream.finish()
            return model.worked_s() - began
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
