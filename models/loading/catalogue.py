"""Catalogue of the loaded models, by id, name or language."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from config.errors import NotFound
from models.loading.model_descriptions import describe_voice, is_streaming, recognizer_engine, token_speed
from models.loading.voice_samples import VoiceSamples
from models.protocols import (
    Closable,
    Embeddings,
    EndOfTurn,
    HasLanguages,
    LanguageModel,
    ReportsQueueWait,
    SpeechToText,
    TextToSpeech,
)
from models.tts.fallback import FallbackTextToSpeech
from models.tts.text_normalization import warm_up

_ID_NAMESPACE: Final = uuid.UUID("6f1d2f8e-4a55-5c0b-9d57-0f2f3f6f7a11")
"""Namespace of the ids; a change would change every id in agents."""
ANY: Final = "*"
"""All languages."""
_ENGLISH: Final = "en"
_ALIASES: Final[Mapping[str, str]] = {"zh": "cmn", "no": "nb", "iw": "he", "in": "id"}
"""Languages that some engines know by another tag only."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class VoiceInfo:
    """A voice in the API's list. `language`: BCP 47 tag. `sample_rate`: the voice's own, in Hz. None: unknown."""

    id: uuid.UUID
    name: str
    language: str | None = None
    engine: str = ""
    quality: str | None = None
    sample_rate: int | None = None


@dataclass(frozen=True)
class LanguageModelInfo:
    """A language model in the API's list; `context_length` in tokens. The speeds are those measured on this machine;
    None: not measured."""

    id: uuid.UUID
    name: str
    provider: str
    context_length: int | None
    is_default: bool
    prompt_tokens_per_second: float | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True)
class RecognizerInfo:
    """A speech recognizer in the API's list. `languages`: BCP 47 tags; `*`: all, or unknown. `real_time_factor`: core
    seconds per second of audio on this machine, the second pass included; None: not measured. `is_default`: recognizes
    the calls of agents without a language."""

    id: uuid.UUID
    name: str
    engine: str
    languages: Sequence[str]
    streaming: bool
    is_default: bool
    real_time_factor: float | None


@dataclass(frozen=True)
class RemoteModels:
    """Models on other machines. One of `llms` may be the default. `prefer_voices`: agents without a chosen voice get
    one of these. `second_pass` adds a remote second pass to a recognizer. `fallback_synthesizers`: those that take over
    from another one, in order, before the local ones."""

    llms: Mapping[LanguageModelInfo, LanguageModel]
    synthesizers: Sequence[TextToSpeech]
    prefer_voices: bool
    second_pass: Callable[[SpeechToText], SpeechToText] | None
    embeddings: Embeddings | None = None
    fallback_synthesizers: Sequence[TextToSpeech] = ()


class Catalogue:
    """The loaded models."""

    def __init__(
        self,
        stt: SpeechToText,
        llms: Mapping[LanguageModelInfo, LanguageModel],
        synthesizers: Sequence[TextToSpeech],
        eot: EndOfTurn,
        stt_by_language: Mapping[str, SpeechToText] | None = None,
        needs_fallback: Collection[TextToSpeech] = (),
        embeddings: Embeddings | None = None,
        fallback_synthesizers: Sequence[TextToSpeech] = (),
    ) -> None:
        """`llms` has one default. `synthesizers` are in order of preference; those in `needs_fallback` get those of
        `fallback_synthesizers` and then another one as fallback. `stt_by_language`: recognizers by primary language
        tag; `stt` is for all others. Without `embeddings` documents are searched by words only."""
        warm_up()
        self.eot = eot
        self.embeddings = embeddings
        self._stt = stt
        self._stt_by_language = dict(stt_by_language or {})
        self._samples = VoiceSamples()
        self._real_time_factors: dict[str, float] = {}
        self._llms = {info.id: (info, model) for info, model in llms.items()}
        self._synthesizers = synthesizers
        self._reliable_synthesizers = [synthesizer for synthesizer in synthesizers if synthesizer not in needs_fallback]
        self._fallback_synthesizers = fallback_synthesizers
        self._voices = {
            voice_id(name): (name, synthesizer) for synthesizer in synthesizers for name in synthesizer.voices()
        }

    def stt(self, language: str | None) -> SpeechToText:
        """The recognizer for a language (a BCP 47 tag; None: unknown, English is assumed)."""
        return self._stt_by_language.get(_primary(language or _ENGLISH), self._stt)

    @staticmethod
    def languages_of(recognizer: SpeechToText) -> Sequence[str]:
        """The BCP 47 tags of a recognizer's languages; `*`: all, or unknown."""
        return tuple(recognizer.languages) if isinstance(recognizer, HasLanguages) else (ANY,)

    def recognizes(self, language: str) -> bool:
        """True if the recognizer for the language has it."""
        return self._has_language(self.stt(language), language)

    def recognizes_by_default(self, language: str) -> bool:
        """True if the recognizer of agents without a language has this one."""
        return self._has_language(self.stt(None), language)

    def _has_language(self, recognizer: SpeechToText, language: str) -> bool:
        tags = self.languages_of(recognizer)
        return ANY in tags or any(same_language(tag, language) for tag in tags)

    def speaks(self, language: str) -> bool:
        """True if a voice has the language."""
        return _voice_for(self._synthesizers, language) is not None

    def llm(self, model_id: uuid.UUID | None) -> LanguageModel:
        """The language model with an id; the default for None. Raises `NotFound`."""
        for info, model in self._llms.values():
            if info.id == model_id or (model_id is None and info.is_default):
                return model
        raise NotFound("Language model not found")

    def with_remote(self, remote: RemoteModels) -> Catalogue:
        """A catalogue with remote models added, before the local ones of their kind where the settings prefer them."""
        has_default = any(info.is_default for info in remote.llms)
        local_llms = {replace(info, is_default=info.is_default and not has_default): model
                for info, model in self._llms.values()}  # fmt: skip
        order = (
            (remote.synthesizers, self._synthesizers)
            if remote.prefer_voices
            else (self._synthesizers, remote.synthesizers)
        )
        by_language = {id(recognizer): recognizer for recognizer in (self._stt, *self._stt_by_language.values())}
        if remote.second_pass is not None:
            by_language = {key: remote.second_pass(recognizer) for key, recognizer in by_language.items()}
        return Catalogue(
            by_language[id(self._stt)],
            {**remote.llms, **local_llms},
            [*order[0], *order[1]],
            self.eot,
            {language: by_language[id(recognizer)] for language, recognizer in self._stt_by_language.items()},
            needs_fallback=remote.synthesizers,
            embeddings=remote.embeddings or self.embeddings,
            fallback_synthesizers=remote.fallback_synthesizers,
        )

    def voice(self, chosen: uuid.UUID | None, language: str | None) -> tuple[TextToSpeech, str]:
        """The synthesizer and the voice's name for a call: the chosen one, else the default for the language, or of
        English if no voice speaks it. Raises `NotFound` for an unknown id."""
        if chosen is None:
            synthesizer, name = self._default_voice(self._synthesizers, language)
        elif chosen in self._voices:
            name, synthesizer = self._voices[chosen]
        else:
            raise NotFound("Voice not found")
        if synthesizer in self._reliable_synthesizers or not self._reliable_synthesizers:
            return synthesizer, name
        return FallbackTextToSpeech(synthesizer, self._voice_fallbacks(synthesizer, name, language)), name

    def _voice_fallbacks(
        self, synthesizer: TextToSpeech, name: str, language: str | None
    ) -> list[tuple[TextToSpeech, str]]:
        """What takes over from a voice: of each fallback synthesizer the voice of the same name, else its best one of
        the language; then a local voice."""
        fallbacks = []
        for other in self._fallback_synthesizers:
            same_name = f"{other.name}/{name.partition('/')[2]}"
            if other is synthesizer:
                continue
            if same_name in other.voices():
                fallbacks.append((other, same_name))
            elif voice := _voice_for([other], language or _ENGLISH):
                fallbacks.append(voice)
        return [*fallbacks, self._default_voice(self._reliable_synthesizers, language)]

    async def voice_sample(self, chosen: uuid.UUID) -> bytes:
        """A WAV file in which a voice speaks, by its own synthesizer alone. Raises `NotFound` for an unknown id, and
        `ModelError`."""
        if chosen not in self._voices:
            raise NotFound("Voice not found")
        name, synthesizer = self._voices[chosen]
        return await self._samples.wav(synthesizer, name, describe_voice(synthesizer, name).sample_rate)

    async def voice_preview(self, chosen: uuid.UUID, text: str, speed: float) -> bytes:
        """A WAV file in which a voice speaks this text, as `voice_sample`; `speed`: 1 is the voice's own."""
        if chosen not in self._voices:
            raise NotFound("Voice not found")
        name, synthesizer = self._voices[chosen]
        rate = describe_voice(synthesizer, name).sample_rate
        return await self._samples.preview(synthesizer, name, rate, text, speed)

    def has_voice(self, chosen: uuid.UUID) -> bool:
        """True if the voice is installed."""
        return chosen in self._voices

    def _default_voice(self, synthesizers: Sequence[TextToSpeech], language: str | None) -> tuple[TextToSpeech, str]:
        if voice := _voice_for(synthesizers, language or _ENGLISH):
            return voice
        if language is not None:
            _log.warning("voice.language_unsupported", language=language)
        return _voice_for(synthesizers, _ENGLISH) or (synthesizers[0], synthesizers[0].voices()[0])

    def voices(self) -> list[VoiceInfo]:
        """All voices, in order of preference."""
        return [_voice_info(id, name, synthesizer) for id, (name, synthesizer) in self._voices.items()]

    def language_models(self) -> list[LanguageModelInfo]:
        """All language models, the default first."""
        models = [_with_speed(info, model) for info, model in self._llms.values()]
        return sorted(models, key=lambda info: not info.is_default)

    def speech_recognizers(self) -> list[RecognizerInfo]:
        """All speech recognizers, the default first."""
        default = self.stt(None)
        recognizers = sorted(self.recognizers, key=lambda recognizer: recognizer is not default)
        return [self._recognizer_info(recognizer, recognizer is default) for recognizer in recognizers]

    def remember_recognition(self, real_time_factors: Mapping[str, float]) -> None:
        """Sets the measured real-time factors of recognizers, by name, for the list. Any thread."""
        self._real_time_factors = {**self._real_time_factors, **real_time_factors}

    def _recognizer_info(self, recognizer: SpeechToText, is_default: bool) -> RecognizerInfo:
        name = recognizer.name
        return RecognizerInfo(
            recognizer_id(name), name, recognizer_engine(recognizer), self.languages_of(recognizer),
            is_streaming(recognizer), is_default, self._real_time_factors.get(name),
        )  # fmt: skip

    def expected_wait_s(self) -> float:
        """Seconds that a turn would wait for the models now: the longest queue of each kind. For the event loop; does
        not block."""
        kinds = self.recognizers, [model for _, model in self._llms.values()], self._synthesizers
        return sum(max((_wait_s(model) for model in kind), default=0.0) for kind in kinds)

    def close(self) -> None:
        """Stop the models' threads and free their memory. Waits for work in progress (0.1 s): not for the event loop.
        Idempotent."""
        models: list[object] = [*self.recognizers, *(model for _, model in self._llms.values()), *self._synthesizers]
        for model in (*models, self.eot, self.embeddings):
            if isinstance(model, Closable):
                model.close()

    @property
    def recognizers(self) -> list[SpeechToText]:
        """The recognizers, each once."""
        return list(
            {id(synthesizer): synthesizer for synthesizer in (self._stt, *self._stt_by_language.values())}.values()
        )


def _voice_for(synthesizers: Sequence[TextToSpeech], language: str) -> tuple[TextToSpeech, str] | None:
    """The first synthesizer with a voice for a language, and its best voice."""
    for synthesizer in synthesizers:
        if name := _best_voice(synthesizer, _normal(language)):
            return synthesizer, name
    return None


def _wait_s(model: object) -> float:
    return model.expected_wait_s() if isinstance(model, ReportsQueueWait) else 0.0


def voice_id(name: str) -> uuid.UUID:
    """The id of the voice of a name (`flite/slt`)."""
    return uuid.uuid5(_ID_NAMESPACE, f"voice:{name}")


def language_model_id(name: str) -> uuid.UUID:
    """The id of the language model of a name."""
    return uuid.uuid5(_ID_NAMESPACE, f"language-model:{name}")


def recognizer_id(name: str) -> uuid.UUID:
    """The id of the speech recognizer of a name."""
    return uuid.uuid5(_ID_NAMESPACE, f"speech-recognizer:{name}")


def _voice_info(id: uuid.UUID, name: str, synthesizer: TextToSpeech) -> VoiceInfo:
    described = describe_voice(synthesizer, name)
    return VoiceInfo(
        id, name, synthesizer.language_of(name), described.engine, described.quality, described.sample_rate
    )


def _with_speed(info: LanguageModelInfo, model: LanguageModel) -> LanguageModelInfo:
    speed = token_speed(model)
    if speed is None:
        return info
    return replace(info, prompt_tokens_per_second=speed.prompt, tokens_per_second=speed.generated)


def _best_voice(synthesizer: TextToSpeech, language: str) -> str | None:
    """A voice of the exact tag, else of the language without a region, else of the region that has the language's name
    or of the US, else of any region."""
    tags = {name: _normal(tag) for name in synthesizer.voices() if (tag := synthesizer.language_of(name))}
    primary = _primary(language)
    for candidate in (language, primary, _ALIASES.get(primary), f"{primary}-{primary}", f"{primary}-us"):
        for name, tag in tags.items():
            if tag == candidate:
                return name
    return next((name for name, tag in tags.items() if _primary(tag) == primary), None)


def same_language(tag: str, other: str) -> bool:
    """True if two tags are of the same language, in any script and of any region."""
    first, second = _primary(tag), _primary(other)
    return _ALIASES.get(first, first) == _ALIASES.get(second, second)


def _normal(tag: str) -> str:
    return tag.lower().replace("_", "-")


def _primary(tag: str) -> str:
    return _normal(tag).split("-")[0]
