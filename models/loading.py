"""What the settings `[models]` ask for, loaded at start-up: models that come with their packages, and those that are
files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog

from config.errors import ModelFileError, StartupError
from models import end_of_turn, engines, espeak_tts, flite_tts, pocketsphinx_stt, responder, second_pass, smart_turn
from models.catalogue import Catalogue, Closable, LanguageModelInfo, language_model_id
from models.known_models import Kind, read_known
from models.on_demand import OnDemandLanguageModel
from models.protocols import EndOfTurn, LanguageModel, SpeechToText, TextToSpeech
from models.speech_cache import Origin, Remembering, SpeechCache
from models.store import Store

AUTO: Final = "auto"
ANY: Final = "*"
"""Stands for all languages."""
_log = structlog.get_logger()
_Model = TypeVar("_Model")
_Makers = Mapping[str, Callable[[], _Model]]

_STT: Final[_Makers[SpeechToText]] = {pocketsphinx_stt.NAME: pocketsphinx_stt.PocketsphinxSpeechToText}
_LLM: Final[_Makers[LanguageModel]] = {responder.NAME: responder.ExtractiveResponder}
_TTS: Final[_Makers[TextToSpeech]] = {
    flite_tts.NAME: flite_tts.FliteTextToSpeech,
    espeak_tts.NAME: espeak_tts.EspeakTextToSpeech,
}
_EOT: Final[_Makers[EndOfTurn]] = {
    smart_turn.NAME: smart_turn.SmartTurn,
    end_of_turn.NAME: end_of_turn.LexicalEndOfTurn,
}
_BUILT_IN_LANGUAGE: Final = "en"
"""What the recognizer in the box understands."""


def load(
    directory: Path,
    stt: str = AUTO,
    llm: str = AUTO,
    tts: str = AUTO,
    eot: str = AUTO,
    on_speech: Callable[[Origin], None] = lambda _: None,
) -> Catalogue:
    """Load the models that the settings `[models] stt llm tts eot` name; `auto` takes the best that is installed: for
    `stt` the best for each language, for `tts` all of them; they share one cache, which tells `on_speech` of every
    piece that is asked for. `directory` is where models that are files lie. Takes seconds: call it before the event
    loop has work. Raises `StartupError`: one line that names the cause and the remedy."""
    try:
        store = Store(directory, read_known(directory))
    except ModelFileError as error:
        raise StartupError(error.message) from error
    with ExitStack() as opened:
        language_models = _language_models(store, llm, opened)
        cache = SpeechCache(on_use=on_speech)
        synthesizers = [Remembering(voice, cache) for voice in _synthesizers(store, tts, opened)]
        ears = _recognizers(store, stt, opened)
        judge = _of("eot", eot, _EOT, opened)
        opened.pop_all()
        return Catalogue(ears[ANY], language_models, synthesizers, judge, ears)


def built_in() -> list[tuple[str, str, str]]:
    """Kind, name, and "ready" or what is missing, of each model that comes with its package. Loads them all."""
    kinds: list[tuple[str, Mapping[str, Callable[[], object]]]] = [
        ("stt", _STT), ("llm", _LLM), ("tts", _TTS), ("eot", _EOT)
    ]  # fmt: skip
    return [(kind, name, _state(make)) for kind, known in kinds for name, make in known.items()]


def built_in_names() -> frozenset[str]:
    """Names of the models that come with their packages."""
    return frozenset(name for known in (_STT, _LLM, _TTS, _EOT) for name in known)


def gguf_files(store: Store) -> dict[str, Path]:
    """Language models, by name: those of the list that are ready, the best first, and other GGUF files that lie in
    the folder, which are called by their names without `.gguf`."""
    listed = {model.name: store.path(model, "model") for model in store.ready("llm") if engines.runs(model)}
    known = {model.name for model in store.known}
    others = {path.stem: path for path in sorted(store.directory.glob("*.gguf")) if path.stem not in known}
    return {**listed, **others}


def _language_models(store: Store, wanted: str, opened: ExitStack) -> dict[LanguageModelInfo, LanguageModel]:
    """The one that a setting names, or the best; all others that are here when a call needs them."""
    files = gguf_files(store)
    makers: _Makers[LanguageModel] = {
        **{name: partial(engines.open_gguf, path, name) for name, path in files.items()}, **_LLM
    }  # fmt: skip
    _refuse_what_is_not_here(store, "llm", wanted, makers)
    default = _of("llm", wanted, makers, opened)
    models = {_info(default.name, _context_length(default), files, is_default=True): default}
    for name in makers:
        if name != default.name and (info := _peeked(name, files)):
            models[info] = OnDemandLanguageModel(name, makers[name]) if name in files else makers[name]()
    return models


def _info(
    name: str, context_length: int | None, files: Mapping[str, Path], *, is_default: bool = False
) -> LanguageModelInfo:
    provider = engines.LLAMA if name in files else "builtin"
    return LanguageModelInfo(language_model_id(name), name, provider, context_length, is_default)


def _context_length(model: LanguageModel) -> int | None:
    length = getattr(model, "context_length", None)
    return length if isinstance(length, int) else None


def _peeked(name: str, files: Mapping[str, Path]) -> LanguageModelInfo | None:
    """What the API says of a model that is not loaded; None, with a line in the log, when its file is none."""
    if name not in files:
        return _info(name, responder.CONTEXT_LENGTH, files)
    try:
        return _info(name, engines.gguf_context_length(files[name]), files)
    except StartupError as error:
        _log.warning("model.missing", name=name, kind="llm", error=error.message)
        return None


def _recognizers(store: Store, wanted: str, opened: ExitStack) -> dict[str, SpeechToText]:
    """By primary language tag, and under `ANY` the one for all others. With `auto` the first of the list that speaks a
    language, models that give words while the caller speaks before others, which are their second pass then; the one in
    the box where there is none for its language. `a+b` is the model a with b as its second pass."""
    files = sorted((model for model in store.ready("stt") if engines.runs(model)), key=engines.hears_whole_turns)
    makers: _Makers[SpeechToText] = {
        **{model.name: partial(engines.RECOGNIZERS[engines.engine_of(model)], store, model) for model in files}, **_STT
    }  # fmt: skip
    for name in wanted.split("+"):
        _refuse_what_is_not_here(store, "stt", name, makers)
    if wanted != AUTO:
        first, *second = [_of("stt", name, makers, opened) for name in wanted.split("+", 1)]
        return {ANY: second_pass.behind(first, second[0]) if second else first}
    ears: dict[str, SpeechToText] = {}
    for model in files:
        spoken = {ANY if tag == "*" else tag.lower().split("-")[0] for tag in model.languages}
        whole = engines.hears_whole_turns(model)
        better = [tag for tag in ears if whole and model.speaks(tag) and second_pass.is_first(ears[tag])]
        if (better or spoken - ears.keys()) and (ear := _tried("stt", model.name, makers, opened)):
            ears.update({tag: second_pass.if_quick_enough(ears[tag], ear) for tag in better})
            ears.update(dict.fromkeys(spoken - ears.keys(), ear))
    if ANY not in ears:
        english = ears.get(_BUILT_IN_LANGUAGE)
        ears[ANY] = english or _of("stt", AUTO, _STT, opened)
    return ears


def _synthesizers(store: Store, wanted: str, opened: ExitStack) -> list[TextToSpeech]:
    """The synthesizer that the setting names; with `auto` all that load, those of files first."""
    makers: dict[str, Callable[[], TextToSpeech]] = {}
    files = [model for model in store.ready("tts") if engines.runs(model)]
    for engine, open_voices in engines.SYNTHESIZERS.items():
        if voices := [model for model in files if engines.engine_of(model) == engine]:
            makers[engine] = partial(open_voices, store, voices)
            makers |= {model.name: partial(open_voices, store, [model]) for model in voices if model.name == wanted}
    makers |= _TTS
    _refuse_what_is_not_here(store, "tts", wanted, makers)
    if wanted != AUTO:
        return [_of("tts", wanted, makers, opened)]
    loaded = [voice for name in makers if (voice := _tried("tts", name, makers, opened))]
    return loaded or [_of("tts", AUTO, makers, opened)]


def _refuse_what_is_not_here(store: Store, kind: Kind, wanted: str, makers: Mapping[str, object]) -> None:
    """Raises `StartupError` that says how to get a model which the list knows and the folder has not."""
    for model in store.known:
        if model.name == wanted and model.kind == kind and wanted not in makers:
            state = store.state(model)
            if state.name == "ready":
                raise StartupError(f"[models] {kind} = {wanted!r} needs {model.engine}: this version does not run it")
            remedy = f"run `trunkline models pull {wanted}`" if state.name != "missing package" else "install it"
            raise StartupError(f"[models] {kind} = {wanted!r} cannot be used ({state}): {remedy}")


def _of(kind: str, name: str, makers: _Makers[_Model], opened: ExitStack) -> _Model:
    """The model that a setting names; with `auto` the first that loads, and one line for each before it."""
    if name != AUTO:
        return _construct(kind, name, makers, opened)
    failures: list[str] = []
    for candidate in makers:
        try:
            return _construct(kind, candidate, makers, opened)
        except StartupError as error:
            failures.append(error.message)
            _log.warning("model.missing", name=candidate, kind=kind, error=error.message)
    raise StartupError(f"no model for [models] {kind} can be loaded: {'; '.join(failures)}")


def _tried(kind: str, name: str, makers: _Makers[_Model], opened: ExitStack) -> _Model | None:
    """A model, or None and a line in the log."""
    try:
        return _construct(kind, name, makers, opened)
    except StartupError as error:
        _log.warning("model.missing", name=name, kind=kind, error=error.message)
        return None


def _construct(kind: str, name: str, makers: _Makers[_Model], opened: ExitStack) -> _Model:
    if name not in makers:
        raise StartupError(f"[models] {kind} = {name!r} is no model; there are: {', '.join((AUTO, *makers))}")
    began = time.monotonic()
    model = makers[name]()
    if isinstance(model, Closable):
        opened.callback(model.close)
    _log.info("model.loaded", name=name, kind=kind, seconds=round(time.monotonic() - began, 2))
    return model


def _state(make: Callable[[], object]) -> str:
    """Whether a model loads; it is closed again."""
    try:
        model = make()
    except StartupError as error:
        return error.message
    if isinstance(model, Closable):
        model.close()
    return "ready"
