"""Recognizers by language: the best streaming model of each language, with a second pass over whole turns behind it."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Final

from config.errors import StartupError
from models.loading import engines
from models.loading.catalogue import ANY
from models.loading.selection import AUTO, Makers, load_or_log, load_selected, require_installed
from models.model_files.known_models import KnownModel
from models.model_files.store import ModelStore
from models.protocols import SpeechToText
from models.stt.pocketsphinx import speech_to_text
from models.stt.two_pass import Transcriber, TwoPassSpeechToText, two_pass_if_fast

OFF: Final = "off"
BUILT_IN: Final[Makers[SpeechToText]] = {speech_to_text.NAME: speech_to_text.PocketsphinxSpeechToText}
_BUILT_IN_LANGUAGE: Final = "en"
"""What the recognizer in the box understands."""


def recognizers(store: ModelStore, wanted: str, second: str, opened: ExitStack) -> dict[str, SpeechToText]:
    """By primary language tag, and under `ANY` for all others. With `auto` each language has the first of the list that
    knows it, English the one in the box where there is none; `second` is a model for whole turns, which hears them
    again, or alone where no other knows the language. Raises `StartupError`."""
    files = [model for model in store.ready("stt") if engines.has_engine(model)]
    makers: Makers[SpeechToText] = {
        **{model.name: partial(engines.RECOGNIZERS[engines.engine_of(model)], store, model) for model in files},
        **BUILT_IN,
    }
    require_installed(store, "stt", wanted, makers)
    require_installed(store, "stt", second, makers, "stt_second")
    loaded: dict[str, SpeechToText] = {}
    unfit: set[str] = set()
    whole = [model for model in files if engines.is_offline_stt(model) and second in (AUTO, model.name)]
    second_passes = {} if second == OFF else _by_language(whole, makers, loaded, opened, unfit)
    if second not in (AUTO, OFF) and not second_passes and second not in unfit:
        turns = [model.name for model in files if engines.is_offline_stt(model)]
        raise StartupError(
            f"[models] stt_second = {second!r} is no model for whole turns that can be loaded; "
            f"there are: {', '.join((AUTO, OFF, *turns))}"
        )
    if wanted != AUTO:
        only = loaded.get(wanted) or load_selected("stt", wanted, makers, opened, others=BUILT_IN)
        by_language = {language: _behind(only, recognizer, second) for language, recognizer in second_passes.items()}
        return {ANY: only, **by_language}
    first = _by_language([model for model in files if not engines.is_offline_stt(model)], makers, loaded, opened, unfit)
    if _BUILT_IN_LANGUAGE not in first and ANY not in first:
        first[_BUILT_IN_LANGUAGE] = load_selected("stt", AUTO, BUILT_IN, opened)
    by_language = {
        language: _behind(recognizer, second_passes.get(language, second_passes.get(ANY)), second)
        for language, recognizer in first.items()
    }
    by_language = {**second_passes, **by_language}
    return {ANY: by_language[_BUILT_IN_LANGUAGE], **by_language} if ANY not in by_language else by_language


def _by_language(
    models: list[KnownModel],
    makers: Makers[SpeechToText],
    loaded: dict[str, SpeechToText],
    opened: ExitStack,
    unfit: set[str],
) -> dict[str, SpeechToText]:
    """The first model that knows a language and loads, for each language that any knows. `loaded` gets those that were
    loaded, by name, `unfit` the names of those that failed their trial."""
    by_language: dict[str, SpeechToText] = {}
    for model in models:
        spoken = {ANY if tag == "*" else tag.lower().split("-")[0] for tag in model.languages}
        if spoken - by_language.keys() and (recognizer := load_or_log("stt", model.name, makers, opened, unfit)):
            loaded[model.name] = recognizer
            by_language.update(dict.fromkeys(spoken - by_language.keys(), recognizer))
    return by_language


def _behind(first: SpeechToText, second: object, wanted: str) -> SpeechToText:
    """Both, where there is a second one and it is not the first; one that no setting names must be quick."""
    if second is first or not isinstance(second, Transcriber):
        return first
    return two_pass_if_fast(first, second) if wanted == AUTO else TwoPassSpeechToText(first, second)
