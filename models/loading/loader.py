"""Loader: opens at start-up what the settings `[models]` name, built-in models and files, and returns the
`Catalogue`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from config.errors import ModelFileError, ModelTrialError, StartupError
from models.llm.fallback import FallbackLanguageModel
from models.llm.lazy_model import OnDemandLanguageModel
from models.loading import engines
from models.loading.catalogue import ANY, Catalogue, LanguageModelInfo, language_model_id
from models.loading.selection import AUTO, Makers, load_or_log, load_selected, require_installed
from models.loading.stt_loader import BUILT_IN, OFF, recognizers
from models.model_files.known_models import read_known
from models.model_files.store import ModelStore
from models.model_files.trial import ModelTrials, log_left_out
from models.protocols import Closable, Embeddings, EndOfTurn, LanguageModel, TextToSpeech
from models.rule_based import responder
from models.tts.cache import CachingTextToSpeech, Origin, SpeechCache
from models.tts.disk_cache import SpeechDiskCache
from models.tts.espeak import text_to_speech
from models.tts.flite import text_to_speech as flite_tts
from models.turn_detection import lexical, smart_turn

_log = structlog.get_logger()

_LLM: Final[Makers[LanguageModel]] = {responder.NAME: responder.ExtractiveResponder}
_TTS: Final[Makers[TextToSpeech]] = {
    flite_tts.NAME: flite_tts.FliteTextToSpeech,
    text_to_speech.NAME: text_to_speech.EspeakTextToSpeech,
}
_EOT: Final[Makers[EndOfTurn]] = {
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
    on_speech: Callable[[Origin], None] = lambda _: None,
    speech_files: SpeechDiskCache | None = None,
    calls: int = 16,
    embedding: str = OFF,
) -> Catalogue:
    """Load the models that the settings `[models] stt stt_second llm tts eot embedding` name; `auto` takes the best
    that is installed: for `stt` the best for each language, for `tts` all of them; they share one cache, which tells
    `on_speech` of every piece that is asked for, and keeps some in `speech_files`. `directory` is where models that are
    files lie. Language models get memory for so many `calls`, if the machine has it. Takes seconds: call it before the
    event loop has work. Raises `StartupError`: one line that names the cause and the remedy."""
    try:
        store = ModelStore(directory, read_known(directory))
    except ModelFileError as error:
        raise StartupError(error.message) from error
    with ExitStack() as opened:
        language_models = _language_models(store, llm, opened, calls)
        cache = SpeechCache(on_use=on_speech, files=speech_files)
        synthesizers = [CachingTextToSpeech(voice, cache) for voice in _synthesizers(store, tts, opened)]
        by_language = recognizers(store, stt, stt_second, opened)
        end_of_turn = load_selected("eot", eot, _EOT, opened)
        embeds = embeddings_of(store, embedding, opened)
        opened.pop_all()
        return Catalogue(by_language[ANY], language_models, synthesizers, end_of_turn, by_language, embeddings=embeds)


def built_in() -> list[tuple[str, str, str]]:
    """Kind, name, and "ready" or what is missing, of each model that comes with its package. Loads them all."""
    kinds: list[tuple[str, Mapping[str, Callable[[], object]]]] = [
        ("stt", BUILT_IN), ("llm", _LLM), ("tts", _TTS), ("eot", _EOT)
    ]  # fmt: skip
    return [(kind, name, _state(make)) for kind, known in kinds for name, make in known.items()]


def built_in_names() -> frozenset[str]:
    """Names of the models that come with their packages, and what a setting calls all voices of an engine."""
    return frozenset(name for known in (BUILT_IN, _LLM, _TTS, _EOT, engines.SYNTHESIZERS) for name in known)


def gguf_files(store: ModelStore) -> dict[str, Path]:
    """Language models, by name: those of the list that are ready, the best first, and other GGUF files that lie in
    the folder, which are called by their names without `.gguf`."""
    listed = {model.name: store.path(model, "model") for model in store.ready("llm") if engines.has_engine(model)}
    known = {model.name for model in store.known}
    others = {path.stem: path for path in sorted(store.directory.glob("*.gguf")) if path.stem not in known}
    return {**listed, **others}


def _language_models(
    store: ModelStore, wanted: str, opened: ExitStack, calls: int
) -> dict[LanguageModelInfo, LanguageModel]:
    """The one that a setting names, or the best; all others that are here when a call needs them. Behind each that is
    a file there is the responder: a caller is never left without an answer. It stands in for a named one that fails its
    trial."""
    files = gguf_files(store)
    trials = {name: ModelTrials(store.directory) for name in files}
    makers: Makers[LanguageModel] = {
        **{name: partial(_open_tried, trials[name], path, name, calls) for name, path in files.items()}, **_LLM
    }  # fmt: skip
    require_installed(store, "llm", wanted, makers)
    default = load_selected("llm", wanted, makers, opened, others=_LLM)
    spare = default if default.name in _LLM else _LLM[responder.NAME]()
    models = {_info(default.name, _context_length(default), files, is_default=True): default}
    for name in makers:
        if name != default.name and (info := _peeked(name, files, trials.get(name))):
            models[info] = OnDemandLanguageModel(name, makers[name], trials[name].stop) if name in files else spare
    return {
        info: FallbackLanguageModel(info.name, [model, spare]) if info.name in files else model
        for info, model in models.items()
    }


def _open_tried(trials: ModelTrials, path: Path, name: str, calls: int) -> LanguageModel:
    """A GGUF file, loaded after its trial. Raises `StartupError`."""
    engines.trial_gguf(trials, path, name)
    return engines.open_gguf(path, name, calls)


def _info(
    name: str, context_length: int | None, files: Mapping[str, Path], *, is_default: bool = False
) -> LanguageModelInfo:
    provider = engines.LLAMA if name in files else "builtin"
    return LanguageModelInfo(language_model_id(name), name, provider, context_length, is_default)


def _context_length(model: LanguageModel) -> int | None:
    length = getattr(model, "context_length", None)
    return length if isinstance(length, int) else None


def _peeked(name: str, files: Mapping[str, Path], trials: ModelTrials | None) -> LanguageModelInfo | None:
    """What the API says of a model that is not loaded; None, with a line in the log, when its file is none. `trials`
    are the model's, None for one that is no file."""
    if trials is None:
        return _info(name, responder.CONTEXT_LENGTH, files)
    told = trials.failure is not None
    try:
        return _info(name, engines.gguf_context_length(trials, files[name], name), files)
    except ModelTrialError as error:
        if not told:
            log_left_out("llm", error)
        return None
    except StartupError as error:
        _log.warning("model.missing", name=name, kind="llm", error=error.message)
        return None


def _synthesizers(store: ModelStore, wanted: str, opened: ExitStack) -> list[TextToSpeech]:
    """The synthesizer that the setting names; with `auto` all that load, those of files first."""
    makers: dict[str, Callable[[], TextToSpeech]] = {}
    files = [model for model in store.ready("tts") if engines.has_engine(model)]
    for engine, open_voices in engines.SYNTHESIZERS.items():
        if voices := [model for model in files if engines.engine_of(model) == engine]:
            makers[engine] = partial(open_voices, store, voices)
            makers |= {model.name: partial(open_voices, store, [model]) for model in voices if wanted != AUTO}
    makers |= _TTS
    require_installed(store, "tts", wanted, makers)
    if wanted != AUTO:
        try:
            return [load_selected("tts", wanted, makers, opened)]
        except ModelTrialError as error:
            log_left_out("tts", error)
            makers = dict(_TTS)
    loaded = [voice for name in makers if (voice := load_or_log("tts", name, makers, opened))]
    return loaded or [load_selected("tts", AUTO, makers, opened)]


def embeddings_of(store: ModelStore, wanted: str, opened: ExitStack) -> Embeddings | None:
    """The model that the setting names; with `auto` the first that loads, if there is any."""
    if wanted == OFF:
        return None
    makers: dict[str, Callable[[], Embeddings]] = {
        model.name: partial(engines.EMBEDDERS[engines.engine_of(model)], store, model)
        for model in store.ready("embedding")
        if engines.has_engine(model)
    }
    require_installed(store, "embedding", wanted, makers)
    if wanted not in (AUTO, *makers):
        there = ", ".join((AUTO, OFF, *makers))
        raise StartupError(f"[models] embedding = {wanted!r} is no model; there are: {there}")
    if wanted != AUTO:
        try:
            return load_selected("embedding", wanted, makers, opened)
        except ModelTrialError as error:
            log_left_out("embedding", error)
            return None
    return next((model for name in makers if (model := load_or_log("embedding", name, makers, opened))), None)


def _state(make: Callable[[], object]) -> str:
    """Whether a model loads; it is closed again."""
    try:
        model = make()
    except StartupError as error:
        return error.message
    if isinstance(model, Closable):
        model.close()
    return "ready"
