"""Which of the installed models a catalogue has loaded, and how fast they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from models.llm.lazy_language_model import LazyLanguageModel
from models.loading.catalogue import Catalogue, VoiceInfo
from models.loading.model_descriptions import measured_factors, primary_model
from models.stt.two_pass import TwoPassSpeechToText
from models.tts.cache import CachingTextToSpeech
from models.tts.speed import TtsSpeed

_PIPER: Final = "piper"
"""The engine whose voices are named after their models: `piper/MODEL`, or `piper/MODEL/SPEAKER`."""


@dataclass(frozen=True)
class ModelSpeed:
    """Speed on this machine. Tokens per second: of a prompt, and generated for one call; `real_time_factor`: processor
    seconds for a second of speech. None: not measured."""

    prompt_tokens_per_s: float | None = None
    tokens_per_s: float | None = None
    real_time_factor: float | None = None


@dataclass(frozen=True)
class ModelUsage:
    """`loaded`: the loaded models with their speed, by the name of the model, of a voice by its own; `voices`: those
    that calls can have."""

    loaded: Mapping[str, ModelSpeed] = field(default_factory=dict)
    voices: Sequence[VoiceInfo] = ()

    def voices_of(self, name: str) -> list[VoiceInfo]:
        """The voices of a text-to-speech model in files."""
        first = f"{_PIPER}/{name.removeprefix(f'{_PIPER}-')}"
        return [each for each in self.voices if each.name == first or each.name.startswith(f"{first}/")]

    def has_loaded(self, name: str) -> bool:
        """True if the server holds the model, or opens its files when a call needs them."""
        return name in self.loaded or any(voice.engine == name for voice in self.voices) or bool(self.voices_of(name))

    def speed_of(self, name: str) -> ModelSpeed:
        """The speed that a loaded model has measured."""
        names = (name, *(voice.name for voice in self.voices_of(name)))
        return next((self.loaded[each] for each in names if each in self.loaded), ModelSpeed())


def usage_of(catalogue: Catalogue) -> ModelUsage:
    """The usage of models by a catalogue."""
    return ModelUsage(
        {**dict(_language_models(catalogue)), **dict(_recognizers(catalogue)), **dict(_others(catalogue))},
        catalogue.voices(),
    )


def _language_models(catalogue: Catalogue) -> Iterator[tuple[str, ModelSpeed]]:
    for info in catalogue.language_models():
        model = primary_model(catalogue.llm(info.id))
        if not isinstance(model, LazyLanguageModel) or model.loaded is not None:
            yield info.name, ModelSpeed(info.prompt_tokens_per_second, info.tokens_per_second)


def _recognizers(catalogue: Catalogue) -> Iterator[tuple[str, ModelSpeed]]:
    timed = {info.name: info.real_time_factor for info in catalogue.speech_recognizers()}
    for recognizer in catalogue.recognizers:
        parts: list[object] = [recognizer]
        if isinstance(recognizer, TwoPassSpeechToText):
            parts = [recognizer.streaming, recognizer.offline]
        for part in parts:
            name = str(getattr(part, "name", ""))
            yield name, ModelSpeed(real_time_factor=measured_factors(part).get(1, timed.get(name)))


def _others(catalogue: Catalogue) -> Iterator[tuple[str, ModelSpeed]]:
    yield catalogue.eot.name, ModelSpeed()
    if catalogue.embeddings is not None:
        yield catalogue.embeddings.name, ModelSpeed()
    timed = next((each for each in catalogue.voices() if each.engine == _PIPER), None)
    if timed is not None:  # the first voice alone is timed
        synthesizer, name = catalogue.voice(timed.id, None)
        inner = synthesizer.voice if isinstance(synthesizer, CachingTextToSpeech) else synthesizer
        speed = getattr(inner, "speed", None)
        yield name, ModelSpeed(real_time_factor=speed.real_time_factor if isinstance(speed, TtsSpeed) else None)
