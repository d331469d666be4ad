"""Selection: opens the one model of a kind that a setting names, or the best that loads, and says why another one does
not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, TypeVar

import structlog

from config.errors import ModelTrialError, StartupError
from models.loading import engines
from models.model_files.known_models import Kind
from models.model_files.store import ModelStore
from models.model_files.trial import log_left_out
from models.protocols import Closable

AUTO: Final = "auto"
"""The best that is installed."""
_log = structlog.get_logger()
Model = TypeVar("Model")
Makers = Mapping[str, Callable[[], Model]]
"""How each model is opened, by name, the best first. `opened` in the functions below closes those that were opened when
a later one cannot be."""


def require_installed(
    store: ModelStore, kind: Kind, wanted: str, makers: Mapping[str, object], setting: str | None = None
) -> None:
    """Raises `StartupError` that says how to get a model which the list knows and the folder has not; `setting` is what
    names it, where that is not called like the kind."""
    named = f"[models] {setting or kind} = {wanted!r}"
    for model in store.known:
        if model.name == wanted and model.kind == kind and wanted not in makers:
            if not engines.has_engine(model):
                raise StartupError(f"{named} needs {model.engine}: this version does not run it")
            state = store.state(model)
            remedy = f"run `trunkline models pull {wanted}`" if state.name != "missing package" else "install it"
            raise StartupError(f"{named} cannot be used ({state}): {remedy}")


def load_selected(
    kind: str, name: str, makers: Makers[Model], opened: ExitStack, others: Makers[Model] | None = None
) -> Model:
    """The model that a setting names, or, when it fails its trial, the first of the `others` that loads: a telephone
    that is answered by a lesser model is better than none. With `auto` the first that loads, and one line in the log
    for each before it."""
    if name != AUTO:
        try:
            return _construct(kind, name, makers, opened)
        except ModelTrialError as error:
            if not others:
                raise
            log_left_out(kind, error)
            makers = others
    failures: list[str] = []
    for candidate in makers:
        try:
            return _construct(kind, candidate, makers, opened)
        except StartupError as error:
            failures.append(error.message)
            _log_failure(kind, candidate, error)
    raise StartupError(f"no model for [models] {kind} can be loaded: {'; '.join(failures)}")


def load_or_log(
    kind: str, name: str, makers: Makers[Model], opened: ExitStack, unfit: set[str] | None = None
) -> Model | None:
    """A model, or None and a line in the log; `unfit` gets the name of one that failed its trial."""
    try:
        return _construct(kind, name, makers, opened)
    except StartupError as error:
        _log_failure(kind, name, error)
        if unfit is not None and isinstance(error, ModelTrialError):
            unfit.add(name)
        return None


def _log_failure(kind: str, name: str, error: StartupError) -> None:
    if isinstance(error, ModelTrialError):
        log_left_out(kind, error)
    else:
        _log.warning("model.missing", name=name, kind=kind, error=error.message)


def _construct(kind: str, name: str, makers: Makers[Model], opened: ExitStack) -> Model:
    if name not in makers:
        raise StartupError(f"[models] {kind} = {name!r} is no model; there are: {', '.join((AUTO, *makers))}")
    began = time.monotonic()
    model = makers[name]()
    if isinstance(model, Closable):
        opened.callback(model.close)
    _log.info("model.loaded", name=name, kind=kind, seconds=round(time.monotonic() - began, 2))
    return model
