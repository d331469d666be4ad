"""What lists tell of a loaded model: engine, voice properties, and the speed measured on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from models.llm.fallback import FallbackLanguageModel
from models.llm.lazy_language_model import LazyLanguageModel
from models.llm.llama.batching.speed_measurement import LlmSpeed
from models.protocols import DescribesVoices, LanguageModel, SpeechToText, TextToSpeech, VoiceDescription
from models.remote.text_to_speech import RemoteTextToSpeech
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.stt.sherpa.offline_model import OfflineSpeechToText
from models.stt.sherpa.streaming_model import SherpaSpeechToText
from models.stt.two_pass import TwoPassSpeechToText
from models.tts.cache import CachingTextToSpeech

OPENAI: Final = "openai"
"""The engine of models on other machines."""


@dataclass(frozen=True)
class TokenSpeed:
    """Tokens per second of one conversation with a short context: of a prompt, and generated."""

    prompt: float
    generated: float


def describe_voice(synthesizer: TextToSpeech, voice: str) -> VoiceDescription:
    """The properties of a voice; None for those that its synthesizer does not know."""
    if isinstance(synthesizer, CachingTextToSpeech):
        return describe_voice(synthesizer.voice, voice)
    if isinstance(synthesizer, DescribesVoices):
        return synthesizer.describe(voice)
    return VoiceDescription(OPENAI if isinstance(synthesizer, RemoteTextToSpeech) else synthesizer.name)


def recognizer_engine(model: SpeechToText) -> str:
    """The engine of a recognizer; with a second pass that of the first."""
    match model:
        case TwoPassSpeechToText():
            return recognizer_engine(model.streaming)
        case SherpaSpeechToText() | OfflineSpeechToText():
            return "sherpa-onnx"
        case PocketsphinxSpeechToText():
            return "pocketsphinx"
    return model.name


def is_streaming(model: SpeechToText) -> bool:
    """True if the recognizer has words while the caller speaks."""
    return not isinstance(model, OfflineSpeechToText)


def primary_model(model: LanguageModel) -> LanguageModel:
    """The model itself, or the first one of a fallback chain."""
    return primary_model(model.models[0]) if isinstance(model, FallbackLanguageModel) else model


def token_speed(model: LanguageModel) -> TokenSpeed | None:
    """The speed that a language model measured when it was loaded; None without, also for one that is not loaded."""
    model = primary_model(model)
    if isinstance(model, LazyLanguageModel):
        return None if model.loaded is None else token_speed(model.loaded)
    speed = getattr(model, "speed", None)
    if not isinstance(speed, LlmSpeed) or not speed.decode_tokens_per_s:
        return None
    return TokenSpeed(speed.prefill_tokens_per_s, speed.decode_tokens_per_s[min(speed.decode_tokens_per_s)])


def measured_factors(model: object) -> dict[int, float]:
    """The real-time factors that a recognizer measured on load, by number of streams; empty without."""
    real_time_factors = getattr(getattr(model, "speed", None), "real_time_factor", None)
    return dict(real_time_factors) if isinstance(real_time_factors, Mapping) else {}
