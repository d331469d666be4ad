"""What models there are, loaded once at start-up and chosen by name or id.

An id is the UUID of a name (version 5), so that it is the same on every start and every machine.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar, runtime_checkable

import structlog

from config.errors import NotFound, StartupError
from models import end_of_turn, espeak_tts, flite_tts, pocketsphinx_stt, responder, smart_turn
from models.protocols import EndOfTurn, LanguageModel, SpeechToText, TextToSpeech
from models.speakable import prepare
from models.speech_cache import Origin, Remembering, SpeechCache

AUTO: Final = "auto"
_IDS: Final = uuid.UUID("6f1d2f8e-4a55-5c0b-9d57-0f2f3f6f7a11")
"""Namespace of the ids; changing it changes every id that agents hold."""

_log = structlog.get_logger()
_Model = TypeVar("_Model")

_STT: Final[Mapping[str, Callable[[], SpeechToText]]] = {
    pocketsphinx_stt.NAME: pocketsphinx_stt.PocketsphinxSpeechToText,
}
_LLM: Final[Mapping[str, Callable[[], LanguageModel]]] = {responder.NAME: responder.ExtractiveResponder}
_TTS: Final[Mapping[str, Callable[[], TextToSpeech]]] = {
    flite_tts.NAME: flite_tts.FliteTextToSpeech,
    espeak_tts.NAME: espeak_tts.EspeakTextToSpeech,
}
_EOT: Final[Mapping[str, Callable[[], EndOfTurn]]] = {
    smart_turn.NAME: smart_turn.SmartTurn,
    end_of_turn.NAME: end_of_turn.LexicalEndOfTurn,
}


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
    context_length: int
    is_default: bool


@runtime_checkable
class _Closable(Protocol):
    def close(self) -> None: ...


class Catalogue:
    """The loaded models. Made by `load`."""

    def __init__(
        self,
        stt: SpeechToText,
        llms: Mapping[LanguageModelInfo, LanguageModel],
        synthesizers: list[TextToSpeech],
        eot: EndOfTurn,
    ) -> None:
        """`llms` holds one default. `synthesizers` come in the order of preference. Tests hand in their own models."""
        prepare()
        self.eot = eot
        self._stt = stt
        self._llms = {info.id: (info, model) for info, model in llms.items()}
        self._synthesizers = synthesizers
        self._voices = {
            voice_id(name): (name, synthesizer) for synthesizer in synthesizers for name in synthesizer.voices()
        }

    def stt(self, language: str | None) -> SpeechToText:
        """The recognizer for a language (a BCP 47 tag, None: not known)."""
        return self._stt

    def llm(self, model_id: uuid.UUID | None) -> LanguageModel:
        """The language model with an id, the default for None. Raises `NotFound`."""
        for info, model in self._llms.values():
            if info.id == model_id or (model_id is None and info.is_default):
                return model
        raise NotFound("Language model not found")

    def voice(self, chosen: uuid.UUID | None, language: str | None) -> tuple[TextToSpeech, str]:
        """The synthesizer and its voice's name: the chosen one, else the default for the language. A language that no
        voice speaks gets the default voice. Raises `NotFound` for an unknown id."""
        if chosen is not None:
            if chosen not in self._voices:
                raise NotFound("Voice not found")
            name, synthesizer = self._voices[chosen]
            return synthesizer, name
        for wanted in _voice_names(language):
            if voice_id(wanted) in self._voices:
                name, synthesizer = self._voices[voice_id(wanted)]
                return synthesizer, name
        if language is not None and not _is_english(language):
            _log.warning("voice.language_unsupported", language=language)
        first = self._synthesizers[0]
        return first, first.voices()[0]

    def voices(self) -> list[VoiceInfo]:
        """All voices, in the order of preference."""
        return [VoiceInfo(id, name) for id, (name, _) in self._voices.items()]

    def language_models(self) -> list[LanguageModelInfo]:
        """All language models, the default first."""
        return sorted((info for info, _ in self._llms.values()), key=lambda info: not info.is_default)

    def close(self) -> None:
        """Stop the models' threads and free their memory. Waits for work in progress (0.1 s): not for the event loop.
        Idempotent."""
        for model in (self._stt, *(model for _, model in self._llms.values()), *self._synthesizers, self.eot):
            if isinstance(model, _Closable):
                model.close()


def load(
    directory: Path,
    stt: str = AUTO,
    llm: str = AUTO,
    tts: str = AUTO,
    eot: str = AUTO,
    on_speech: Callable[[Origin], None] = lambda _: None,
) -> Catalogue:
    """Load the models that the settings `[models] stt llm tts eot` name; `auto` takes the best that is installed, and
    for `tts` all of them; they share one cache, which tells `on_speech` of every piece that is asked for. `directory`
    is where models that are files lie; those that this build knows come with their packages. Takes seconds: call it
    before the event loop has work. Raises `StartupError`: one line that names the cause and the remedy."""
    language_model = _load_one("llm", llm, _LLM)
    info = LanguageModelInfo(
        language_model_id(language_model.name), language_model.name, "builtin", responder.CONTEXT_LENGTH, True
    )
    cache = SpeechCache(on_use=on_speech)
    synthesizers: list[TextToSpeech] = [Remembering(voice, cache) for voice in _load_synthesizers(tts)]
    return Catalogue(_load_one("stt", stt, _STT), {info: language_model}, synthesizers, _load_one("eot", eot, _EOT))


def built_in() -> list[tuple[str, str, str]]:
    """Kind, name, and "ready" or what is missing, of each model that comes with its package. Loads them all."""
    kinds: list[tuple[str, Mapping[str, Callable[[], object]]]] = [
        ("stt", _STT), ("llm", _LLM), ("tts", _TTS), ("eot", _EOT)
    ]  # fmt: skip
    return [(kind, name, _state(make)) for kind, known in kinds for name, make in known.items()]


def voice_id(name: str) -> uuid.UUID:
    """The id of a voice, by its name (`flite/slt`)."""
    return uuid.uuid5(_IDS, f"voice:{name}")


def language_of(voice: str) -> str | None:
    """The BCP 47 tag of what a voice speaks, by its name; None when the name does not tell."""
    engine, _, own_name = voice.partition("/")
    return {flite_tts.NAME: "en", espeak_tts.NAME: own_name}.get(engine)


def language_model_id(name: str) -> uuid.UUID:
    """The id of a language model, by its name."""
    return uuid.uuid5(_IDS, f"language-model:{name}")


def _state(make: Callable[[], object]) -> str:
    """Whether a model loads; it is closed again."""
    try:
        model = make()
    except StartupError as error:
        return error.message
    if isinstance(model, _Closable):
        model.close()
    return "ready"


def _load_one(kind: str, name: str, known: Mapping[str, Callable[[], _Model]]) -> _Model:
    """The model that a setting names; with `auto` the first that loads, and one line for each before it."""
    if name != AUTO:
        return _construct(kind, name, known)
    failures: list[str] = []
    for candidate in known:
        try:
            return _construct(kind, candidate, known)
        except StartupError as error:
            failures.append(error.message)
            _log.warning("model.missing", name=candidate, kind=kind, error=error.message)
    raise StartupError(f"no model for [models] {kind} can be loaded: {'; '.join(failures)}")


def _load_synthesizers(name: str) -> list[TextToSpeech]:
    """The synthesizer that the setting names; with `auto` all that load, and one line for each that does not."""
    if name != AUTO:
        return [_construct("tts", name, _TTS)]
    synthesizers: list[TextToSpeech] = []
    failures: list[str] = []
    for candidate in _TTS:
        try:
            synthesizers.append(_construct("tts", candidate, _TTS))
        except StartupError as error:
            failures.append(error.message)
            _log.warning("model.missing", name=candidate, kind="tts", error=error.message)
    if not synthesizers:
        raise StartupError(f"no model for [models] tts can be loaded: {'; '.join(failures)}")
    return synthesizers


def _construct(kind: str, name: str, known: Mapping[str, Callable[[], _Model]]) -> _Model:
    if name not in known:
        raise StartupError(f"[models] {kind} = {name!r} is no model; there are: {', '.join((AUTO, *known))}")
    began = time.monotonic()
    model = known[name]()
    _log.info("model.loaded", name=name, kind=kind, seconds=round(time.monotonic() - began, 2))
    return model


def _voice_names(language: str | None) -> list[str]:
    """Voices that speak a language, the best first: English by flite, all others by espeak-ng."""
    tag = (language or "en").lower().replace("_", "-")
    names = [f"{flite_tts.NAME}/{voice}" for voice in ("slt", "rms", "awb", "kal16")] if _is_english(tag) else []
    primary = tag.split("-")[0]
    return [*names, f"{espeak_tts.NAME}/{tag}", f"{espeak_tts.NAME}/{primary}", *_REGIONAL.get(primary, ())]


def _is_english(language: str) -> bool:
    return language.lower().replace("_", "-").split("-")[0] == "en"


_REGIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    "en": (f"{espeak_tts.NAME}/en-us", f"{espeak_tts.NAME}/en-gb"),
    "fr": (f"{espeak_tts.NAME}/fr-fr",),
    "zh": (f"{espeak_tts.NAME}/cmn",),
    "no": (f"{espeak_tts.NAME}/nb",),
}
"""Languages that espeak-ng knows by another tag alone."""
