"""Catalogue: the models that are loaded, looked up by id, name or language while the server runs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from config.errors import NotFound
from models.protocols import (
    Closable,
    Embeddings,
    EndOfTurn,
    LanguageModel,
    ReportsQueueWait,
    SpeechToText,
    TextToSpeech,
)
from models.tts.fallback import FallbackTextToSpeech
from models.tts.text_normalization import warm_up

_IDS: Final = uuid.UUID("6f1d2f8e-4a55-5c0b-9d57-0f2f3f6f7a11")
"""Namespace of the ids; changing it changes every id that agents hold."""
ANY: Final = "*"
"""Stands for all languages."""
_ENGLISH: Final = "en"
_ALIASES: Final[Mapping[str, str]] = {"zh": "cmn", "no": "nb", "iw": "he", "in": "id"}
"""Languages that some engines know by another tag alone."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class VoiceInfo:
    """A voice as the API lists it."""

    id: uuid.UUID
    name: str


@dataclass(frozen=True)
class LanguageModelInfo:
    """A language model as the API lists it; `context_length` in tokens."""

    id: uuid.UUID
    name: str
    provider: str
    context_length: int | None
    is_default: bool


@dataclass(frozen=True)
class RemoteModels:
    """Models on other machines. One of `llms` may be the default. `voices_first`: agents that choose no voice get one
    of these. `second_pass` makes a recognizer that asks another machine what a turn was."""

    llms: Mapping[LanguageModelInfo, LanguageModel]
    synthesizers: Sequence[TextToSpeech]
    voices_first: bool
    second_pass: Callable[[SpeechToText], SpeechToText] | None
    embeddings: Embeddings | None = None


class Catalogue:
    """The loaded models."""

    def __init__(
        self,
        stt: SpeechToText,
        llms: Mapping[LanguageModelInfo, LanguageModel],
        synthesizers: Sequence[TextToSpeech],
        eot: EndOfTurn,
        stt_by_language: Mapping[str, SpeechToText] | None = None,
        unsure: Collection[TextToSpeech] = (),
        embeddings: Embeddings | None = None,
    ) -> None:
        """`llms` holds one default. `synthesizers` come in the order of preference; those that are `unsure` have
        another one behind them in a call. `stt_by_language` are recognizers by primary language tag; `stt` is for all
        others. Without `embeddings` documents are searched by words alone. Tests hand in their own models."""
        warm_up()
        self.eot = eot
        self.embeddings = embeddings
        self._stt = stt
        self._stt_by_language = dict(stt_by_language or {})
        self._llms = {info.id: (info, model) for info, model in llms.items()}
        self._synthesizers = synthesizers
        self._sure = [each for each in synthesizers if each not in unsure]
        self._voices = {
            voice_id(name): (name, synthesizer) for synthesizer in synthesizers for name in synthesizer.voices()
        }

    def stt(self, language: str | None) -> SpeechToText:
        """The recognizer for a language (a BCP 47 tag, None: not known, which is taken for English)."""
        return self._stt_by_language.get(_primary(language or _ENGLISH), self._stt)

    def llm(self, model_id: uuid.UUID | None) -> LanguageModel:
        """The language model with an id, the default for None. Raises `NotFound`."""
        for info, model in self._llms.values():
            if info.id == model_id or (model_id is None and info.is_default):
                return model
        raise NotFound("Language model not found")

    def with_remote(self, more: RemoteModels) -> Catalogue:
        """The same with models on other machines, which come before the others of their kind where they are to."""
        has_default = any(info.is_default for info in more.llms)
        here = {replace(info, is_default=info.is_default and not has_default): model
                for info, model in self._llms.values()}  # fmt: skip
        order = (
            (more.synthesizers, self._synthesizers) if more.voices_first else (self._synthesizers, more.synthesizers)
        )
        by_language = {id(recognizer): recognizer for recognizer in (self._stt, *self._stt_by_language.values())}
        if more.second_pass is not None:
            by_language = {key: more.second_pass(recognizer) for key, recognizer in by_language.items()}
        return Catalogue(
            by_language[id(self._stt)],
            {**more.llms, **here},
            [*order[0], *order[1]],
            self.eot,
            {language: by_language[id(recognizer)] for language, recognizer in self._stt_by_language.items()},
            unsure=more.synthesizers,
            embeddings=more.embeddings or self.embeddings,
        )

    def voice(self, chosen: uuid.UUID | None, language: str | None) -> tuple[TextToSpeech, str]:
        """For one call: the synthesizer and its voice's name, the chosen one, else the default for the language. A
        language that no voice speaks gets the default voice. Raises `NotFound` for an unknown id."""
        if chosen is None:
            synthesizer, name = self._default_voice(self._synthesizers, language)
        elif chosen in self._voices:
            name, synthesizer = self._voices[chosen]
        else:
            raise NotFound("Voice not found")
        if synthesizer in self._sure or not self._sure:
            return synthesizer, name
        return FallbackTextToSpeech(synthesizer, *self._default_voice(self._sure, language)), name

    def _default_voice(self, synthesizers: Sequence[TextToSpeech], language: str | None) -> tuple[TextToSpeech, str]:
        if found := _voice_for(synthesizers, language or _ENGLISH):
            return found
        if language is not None:
            _log.warning("voice.language_unsupported", language=language)
        return _voice_for(synthesizers, _ENGLISH) or (synthesizers[0], synthesizers[0].voices()[0])

    def voices(self) -> list[VoiceInfo]:
        """All voices, in the order of preference."""
        return [VoiceInfo(id, name) for id, (name, _) in self._voices.items()]

    def language_models(self) -> list[LanguageModelInfo]:
        """All language models, the default first."""
        return sorted((info for info, _ in self._llms.values()), key=lambda info: not info.is_default)

    def expected_wait_s(self) -> float:
        """How long a caller would wait for the models now: until the words are heard, answered and spoken, by the
        busiest model of each kind. On the event loop, at once."""
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
        """Each of them once."""
        return list({id(each): each for each in (self._stt, *self._stt_by_language.values())}.values())


def _voice_for(synthesizers: Sequence[TextToSpeech], language: str) -> tuple[TextToSpeech, str] | None:
    """The first synthesizer's voice that speaks a language, by preference one of the very tag."""
    for synthesizer in synthesizers:
        if name := _best_voice(synthesizer, _normal(language)):
            return synthesizer, name
    return None


def _wait_s(model: object) -> float:
    return model.expected_wait_s() if isinstance(model, ReportsQueueWait) else 0.0


def voice_id(name: str) -> uuid.UUID:
    """The id of a voice, by its name (`flite/slt`)."""
    return uuid.uuid5(_IDS, f"voice:{name}")


def language_model_id(name: str) -> uuid.UUID:
    """The id of a language model, by its name."""
    return uuid.uuid5(_IDS, f"language-model:{name}")


def _best_voice(synthesizer: TextToSpeech, language: str) -> str | None:
    """Of the very tag, else of the language alone, else as the language is spoken at home or where most speak it, else
    of any region."""
    spoken = {name: _normal(tag) for name in synthesizer.voices() if (tag := synthesizer.language_of(name))}
    primary = _primary(language)
    for wanted in (language, primary, _ALIASES.get(primary), f"{primary}-{primary}", f"{primary}-us"):
        for name, tag in spoken.items():
            if tag == wanted:
                return name
    return next((name for name, tag in spoken.items() if _primary(tag) == primary), None)


def _normal(tag: str) -> str:
    return tag.lower().replace("_", "-")


def _primary(tag: str) -> str:
    return _normal(tag).split("-")[0]
