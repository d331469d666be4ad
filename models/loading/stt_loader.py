"""Loads recognizers by language: the best streaming model of each language, with a second pass over completed turns."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Final

from config.errors import StartupError
from models.loading import engines
from models.loading.catalogue import ANY
from models.loading.selection import AUTO, ModelFactories, load_or_log, load_selected, require_installed
from models.model_files.known_models import KnownModel
from models.model_files.store import ModelStore
from models.protocols import SpeechToText
from models.stt.pocketsphinx import speech_to_text
from models.stt.two_pass import Transcriber, TwoPassSpeechToText, two_pass_if_fast

OFF: Final = "off"
BUILT_IN: Final[ModelFactories[SpeechToText]] = {speech_to_text.NAME: speech_to_text.PocketsphinxSpeechToText}
_BUILT_IN_LANGUAGE: Final = "en"
"""The language of the built-in recognizer."""


def load_recognizers(
    store: ModelStore, setting: str, second_setting: str, opened: ExitStack
) -> dict[str, SpeechToText]:
    """Recognizers by primary language tag, and under `ANY` for all others. With `auto` each language gets the first
    known model for it, English else the built-in one. `second_setting`: the offline model for the second pass, which
    also serves alone the languages without a streaming model. Raises `StartupError`."""
    files = [model for model in store.ready("stt") if engines.has_engine(model)]
    factories: ModelFactories[SpeechToText] = {
        **{model.name: partial(engines.RECOGNIZERS[engines.engine_of(model)], store, model) for model in files},
        **BUILT_IN,
    }
    require_installed(store, "stt", setting, factories)
    require_installed(store, "stt", second_setting, factories, "stt_second")
    loaded: dict[str, SpeechToText] = {}
    failed_checks: set[str] = set()
    offline_models = [
        model for model in files if engines.is_offline_stt(model) and second_setting in (AUTO, model.name)
    ]
    second_passes = (
        {} if second_setting == OFF else _by_language(offline_models, factories, loaded, opened, failed_checks)
    )
    if second_setting not in (AUTO, OFF) and not second_passes and second_setting not in failed_checks:
        offline_names = [model.name for model in files if engines.is_offline_stt(model)]
        raise StartupError(
            f"[models] stt_second = {second_setting!r} is no offline model that can be loaded; "
            f"there are: {', '.join((AUTO, OFF, *offline_names))}"
        )
    if setting != AUTO:
        selected = loaded.get(setting) or load_selected("stt", setting, factories, opened, fallbacks=BUILT_IN)
        by_language = {
            language: _add_second_pass(selected, recognizer, second_setting)
            for language, recognizer in second_passes.items()
        }
        return {ANY: selected, **by_language}
    streaming = _by_language(
        [model for model in files if not engines.is_offline_stt(model)], factories, loaded, opened, failed_checks
    )
    if _BUILT_IN_LANGUAGE not in streaming and ANY not in streaming:
        streaming[_BUILT_IN_LANGUAGE] = load_selected("stt", AUTO, BUILT_IN, opened)
    by_language = {
        language: _add_second_pass(recognizer, second_passes.get(language, second_passes.get(ANY)), second_setting)
        for language, recognizer in streaming.items()
    }
    by_language = {**second_passes, **by_language}
    return {ANY: by_language[_BUILT_IN_LANGUAGE], **by_language} if ANY not in by_language else by_language


def _by_language(
    models: list[KnownModel],
    factories: ModelFactories[SpeechToText],
    loaded: dict[str, SpeechToText],
    opened: ExitStack,
    failed_checks: set[str],
) -> dict[str, SpeechToText]:
    """The first model that loads, for each language. Adds loaded models to `loaded` by name, and those that failed
    their load check to `failed_checks`."""
    by_language: dict[str, SpeechToText] = {}
    for model in models:
        languages = {ANY if tag == "*" else tag.lower().split("-")[0] for tag in model.languages}
        if languages - by_language.keys() and (
            recognizer := load_or_log("stt", model.name, factories, opened, failed_checks)
        ):
            loaded[model.name] = recognizer
            by_language.update(dict.fromkeys(languages - by_language.keys(), recognizer))
    return by_language


def _add_second_pass(streaming: SpeechToText, second_setting: object, setting: str) -> SpeechToText:
    """A recognizer with the second pass added, if there is another model; with `auto` only if that is fast enough."""
    if second_setting is streaming or not isinstance(second_setting, Transcriber):
        return streaming
    return (
        two_pass_if_fast(streaming, second_setting)
        if setting == AUTO
        else TwoPassSpeechToText(streaming, second_setting)
    )
