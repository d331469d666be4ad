"""Loads at start-up the built-in models and model files that the settings `[models]` name, as a `Catalogue`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from config.errors import LoadCheckError, ModelFileError, StartupError
from models.end_of_turn import lexical, smart_turn
from models.llm.fallback import FallbackLanguageModel
from models.llm.lazy_language_model import LazyLanguageModel
from models.loading import engines
from models.loading.catalogue import ANY, Catalogue, LanguageModelInfo, language_model_id
from models.loading.selection import AUTO, ModelFactories, load_or_log, load_selected, require_installed
from models.loading.stt_loader import BUILT_IN, OFF, load_recognizers
from models.model_files.known_models import Kind, read_known
from models.model_files.load_checker import LoadChecker, log_left_out
from models.model_files.store import ModelStore
from models.protocols import Closable, Embeddings, EndOfTurn, LanguageModel, TextToSpeech
from models.rule_based import responder
from models.tts.cache import CachingTextToSpeech, SpeechCache, SpeechOrigin
from models.tts.disk_cache import SpeechDiskCache
from models.tts.espeak import text_to_speech
from models.tts.flite import text_to_speech as flite_tts

_log = structlog.get_logger()

_LLM: Final[ModelFactories[LanguageModel]] = {responder.NAME: responder.ExtractiveResponder}
_TTS: Final[ModelFactories[TextToSpeech]] = {
    flite_tts.NAME: flite_tts.FliteTextToSpeech,
    text_to_speech.NAME: text_to_speech.EspeakTextToSpeech,
}
_EOT: Final[ModelFactories[EndOfTurn]] = {
    smart_turn.NAME: smart_turn.SmartTurn,
    lexical.NAME: lexical.LexicalEndOfTurn,
}


def load(
    directory: Path,
    stt: str = AUTO,
    llm: str = AUTO,
    tts: str = AUTO,
    eot: str = AUTO,
    stt_second: str = AUTO,
    on_speech: Callable[[SpeechOrigin], None] = lambda _: None,
    speech_files: SpeechDiskCache | None = None,
    calls: int = 16,
    embedding: str = OFF,
) -> Catalogue:
    """Load the models that the settings `[models] stt stt_second llm tts eot embedding` name. `auto` takes the best
    that is installed: for `stt` the best for each language, for `tts` all of them. Voices share a cache, which calls
    `on_speech` at each use and stores to `speech_files`. `directory`: `[models] dir`. Language models get memory for
    `calls` concurrent calls, if the machine has it. Takes seconds: call it before the event loop starts. Raises
    `StartupError` with cause and remedy in one line."""
    store = _open_store(directory)
    with ExitStack() as opened:
        language_models = _language_models(store, llm, opened, calls)
        cache = SpeechCache(on_use=on_speech, disk_cache=speech_files)
        synthesizers = [CachingTextToSpeech(voice, cache) for voice in _synthesizers(store, tts, opened)]
        by_language = load_recognizers(store, stt, stt_second, opened)
        end_of_turn = load_selected("eot", eot, _EOT, opened)
        embeddings = load_embeddings(store, embedding, opened)
        opened.pop_all()
        return Catalogue(
            by_language[ANY], language_models, synthesizers, end_of_turn, by_language, embeddings=embeddings
        )


def load_turn_models(directory: Path, stt: str = AUTO, eot: str = AUTO, stt_second: str = AUTO) -> Catalogue:
    """Load the recognizers and the end-of-turn model alone, for replays of calls: the catalogue has no language model
    and no voice. Arguments and errors are those of `load`."""
    store = _open_store(directory)
    with ExitStack() as opened:
        by_language = load_recognizers(store, stt, stt_second, opened)
        end_of_turn = load_selected("eot", eot, _EOT, opened)
        opened.pop_all()
        return Catalogue(by_language[ANY], {}, (), end_of_turn, by_language)


def _open_store(directory: Path) -> ModelStore:
    """The model files in a folder. Raises `StartupError`."""
    try:
        return ModelStore(directory, read_known(directory))
    except ModelFileError as error:
        raise StartupError(error.message) from error


def built_in_states() -> list[tuple[Kind, str, str]]:
    """Kind, name and state ("ready" or the error) of each built-in model. Loads them all."""
    return [(kind, name, _load_state(make)) for kind, name, make in _built_in_models()]


def built_in_kinds() -> list[tuple[Kind, str]]:
    """Kind and name of each built-in model."""
    return [(kind, name) for kind, name, _ in _built_in_models()]


def _built_in_models() -> list[tuple[Kind, str, Callable[[], object]]]:
    kinds: list[tuple[Kind, Mapping[str, Callable[[], object]]]] = [
        ("stt", BUILT_IN), ("llm", _LLM), ("tts", _TTS), ("eot", _EOT)
    ]  # fmt: skip
    return [(kind, name, make) for kind, factories in kinds for name, make in factories.items()]


def built_in_names() -> frozenset[str]:
    """Names of the built-in models, and of the engines by which a setting names all their voices."""
    return frozenset(name for factories in (BUILT_IN, _LLM, _TTS, _EOT, engines.SYNTHESIZERS) for name in factories)


def gguf_files(store: ModelStore) -> dict[str, Path]:
    """Language model files by name: known models that are ready, the best first, then other GGUF files in `[models]
    dir`, named without `.gguf`."""
    listed = {model.name: store.path(model, "model") for model in store.ready("llm") if engines.has_engine(model)}
    factories = {model.name for model in store.known}
    other_files = {path.stem: path for path in sorted(store.directory.glob("*.gguf")) if path.stem not in factories}
    return {**listed, **other_files}


def _language_models(
    store: ModelStore, setting: str, opened: ExitStack, calls: int
) -> dict[LanguageModelInfo, LanguageModel]:
    """The language model that the setting names, or the best; all others load at first use. Each file falls back to the
    rule-based responder, so that a caller always gets a response; it also replaces a named model that fails its load
    check."""
    files = gguf_files(store)
    checkers = {name: LoadChecker(store.directory) for name in files}
    factories: ModelFactories[LanguageModel] = {
        **{name: partial(_check_and_open, checkers[name], path, name, calls) for name, path in files.items()}, **_LLM
    }  # fmt: skip
    require_installed(store, "llm", setting, factories)
    default = load_selected("llm", setting, factories, opened, fallbacks=_LLM)
    fallback = default if default.name in _LLM else _LLM[responder.NAME]()
    models = {_info(default.name, _context_length(default), files, is_default=True): default}
    for name in factories:
        if name != default.name and (info := _unloaded_info(name, files, checkers.get(name))):
            models[info] = LazyLanguageModel(name, factories[name], checkers[name].stop) if name in files else fallback
    return {
        info: FallbackLanguageModel(info.name, [model, fallback]) if info.name in files else model
        for info, model in models.items()
    }


def _check_and_open(checkers: LoadChecker, path: Path, name: str, calls: int) -> LanguageModel:
    """Check and open a GGUF file. Raises `StartupError`."""
    engines.check_gguf_load(checkers, path, name)
    return engines.open_gguf(path, name, calls)


def _info(
    name: str, context_length: int | None, files: Mapping[str, Path], *, is_default: bool = False
) -> LanguageModelInfo:
    provider = engines.LLAMA if name in files else "builtin"
    return LanguageModelInfo(language_model_id(name), name, provider, context_length, is_default)


def _context_length(model: LanguageModel) -> int | None:
    length = getattr(model, "context_length", None)
    return length if isinstance(length, int) else None


def _unloaded_info(name: str, files: Mapping[str, Path], checkers: LoadChecker | None) -> LanguageModelInfo | None:
    """The API's information on a model that is not loaded; None, with a log line, if its file cannot be loaded."""
    if checkers is None:
        return _info(name, responder.CONTEXT_LENGTH, files)
    already_logged = checkers.failure is not None
    try:
        return _info(name, engines.gguf_context_length(checkers, files[name], name), files)
    except LoadCheckError as error:
        if not already_logged:
            log_left_out("llm", error)
        return None
    except StartupError as error:
        _log.warning("model.missing", name=name, kind="llm", error=error.message)
        return None


def _synthesizers(store: ModelStore, setting: str, opened: ExitStack) -> list[TextToSpeech]:
    """The synthesizer that the setting names; with `auto` all that load, model files first."""
    factories: dict[str, Callable[[], TextToSpeech]] = {}
    files = [model for model in store.ready("tts") if engines.has_engine(model)]
    for engine, open_voices in engines.SYNTHESIZERS.items():
        if voices := [model for model in files if engines.engine_of(model) == engine]:
            factories[engine] = partial(open_voices, store, voices)
            factories |= {model.name: partial(open_voices, store, [model]) for model in voices if setting != AUTO}
    factories |= _TTS
    require_installed(store, "tts", setting, factories)
    if setting != AUTO:
        try:
            return [load_selected("tts", setting, factories, opened)]
        except LoadCheckError as error:
            log_left_out("tts", error)
            factories = dict(_TTS)
    loaded = [voice for name in factories if (voice := load_or_log("tts", name, factories, opened))]
    return loaded or [load_selected("tts", AUTO, factories, opened)]


def load_embeddings(store: ModelStore, setting: str, opened: ExitStack) -> Embeddings | None:
    """The embeddings that the setting names; with `auto` the first that loads, or None."""
    if setting == OFF:
        return None
    factories: dict[str, Callable[[], Embeddings]] = {
        model.name: partial(engines.EMBEDDERS[engines.engine_of(model)], store, model)
        for model in store.ready("embedding")
        if engines.has_engine(model)
    }
    require_installed(store, "embedding", setting, factories)
    if setting not in (AUTO, *factories):
        choices = ", ".join((AUTO, OFF, *factories))
        raise StartupError(f"[models] embedding = {setting!r} is no model; there are: {choices}")
    if setting != AUTO:
        try:
            return load_selected("embedding", setting, factories, opened)
        except LoadCheckError as error:
            log_left_out("embedding", error)
            return None
    return next((model for name in factories if (model := load_or_log("embedding", name, factories, opened))), None)


def _load_state(make: Callable[[], object]) -> str:
    """ "ready", or the error of loading. Closes the model again."""
    try:
        model = make()
    except StartupError as error:
        return error.message
    if isinstance(model, Closable):
        model.close()
    return "ready"
