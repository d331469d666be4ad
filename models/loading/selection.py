"""Selects the model of each kind: opens the one that a setting names, or the best that loads, and logs failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, TypeVar

import structlog

from config.errors import LoadCheckError, StartupError
from models.loading import engines
from models.model_files.known_models import Kind
from models.model_files.load_checker import log_left_out
from models.model_files.store import ModelStore
from models.protocols import Closable

AUTO: Final = "auto"
"""The best that is installed."""
_log = structlog.get_logger()
Model = TypeVar("Model")
ModelFactories = Mapping[str, Callable[[], Model]]
"""Functions that open a model, by name, the best first. In the functions below `opened` closes the opened models if a
later one fails."""


def require_installed(
    store: ModelStore, kind: Kind, setting_value: str, factories: Mapping[str, object], setting: str | None = None
) -> None:
    """Raises `StartupError` with the remedy for a known model that is not installed. `setting`: the name of the
    setting, by default the kind."""
    setting_text = f"[models] {setting or kind} = {setting_value!r}"
    for model in store.known:
        if model.name == setting_value and model.kind == kind and setting_value not in factories:
            if not engines.has_engine(model):
                raise StartupError(f"{setting_text} needs {model.engine}: this version does not run it")
            state = store.state(model)
            remedy = f"run `trunkline models pull {setting_value}`" if state.name != "missing package" else "install it"
            raise StartupError(f"{setting_text} cannot be used ({state}): {remedy}")


def load_selected(
    kind: str,
    name: str,
    factories: ModelFactories[Model],
    opened: ExitStack,
    fallbacks: ModelFactories[Model] | None = None,
) -> Model:
    """The model that a setting names; if it fails its load check, the first of `fallbacks` that loads, because a lesser
    model is better than no server. With `auto` the first that loads, with a log line for each before it."""
    if name != AUTO:
        try:
            return _open_model(kind, name, factories, opened)
        except LoadCheckError as error:
            if not fallbacks:
                raise
            log_left_out(kind, error)
            factories = fallbacks
    failures: list[str] = []
    for candidate in factories:
        try:
            return _open_model(kind, candidate, factories, opened)
        except StartupError as error:
            failures.append(error.message)
            _log_failure(kind, candidate, error)
    raise StartupError(f"no model for [models] {kind} can be loaded: {'; '.join(failures)}")


def load_or_log(
    kind: str, name: str, factories: ModelFactories[Model], opened: ExitStack, failed_checks: set[str] | None = None
) -> Model | None:
    """A model, or None and a log line; adds a model that failed its load check to `failed_checks`."""
    try:
        return _open_model(kind, name, factories, opened)
    except StartupError as error:
        _log_failure(kind, name, error)
        if failed_checks is not None and isinstance(error, LoadCheckError):
            failed_checks.add(name)
        return None


def _log_failure(kind: str, name: str, error: StartupError) -> None:
    if isinstance(error, LoadCheckError):
        log_left_out(kind, error)
    else:
        _log.warning("model.missing", name=name, kind=kind, error=error.message)


def _open_model(kind: str, name: str, factories: ModelFactories[Model], opened: ExitStack) -> Model:
    if name not in factories:
        raise StartupError(f"[models] {kind} = {name!r} is no model; there are: {', '.join((AUTO, *factories))}")
    started = time.monotonic()
    model = factories[name]()
    if isinstance(model, Closable):
        opened.callback(model.close)
    _log.info("model.loaded", name=name, kind=kind, seconds=round(time.monotonic() - started, 2))
    return model
