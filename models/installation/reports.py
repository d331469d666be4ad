"""What is told of a model: its files, what runs on them now, whether it is in use, and how fast it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from models.installation.downloads import Download
from models.installation.inventory import ModelEntry
from models.installation.verification import Verification
from models.loading.model_usage import ModelSpeed, ModelUsage
from models.model_files.load_checker import stored_check
from models.model_files.store import ModelStore

CheckResult = Literal["passed", "failed"]


@dataclass(frozen=True)
class ModelReport:
    """A model and what happens with it. `loaded`: the running server has it; `in_use`: why it must not be deleted, None
    if it may be. `check`: the last load check, None if there is none for these files; `problems` of its files and of
    the check. `checking`: its files are being verified now."""

    entry: ModelEntry
    loaded: bool
    in_use: str | None
    speed: ModelSpeed
    download: Download | None
    checking: bool
    check: CheckResult | None
    problems: tuple[str, ...]


def report_of(
    store: ModelStore,
    entry: ModelEntry,
    usage: ModelUsage,
    named_by_settings: Mapping[str, str],
    download: Download | None,
    checking: Collection[str],
    verified: Verification | None,
) -> ModelReport:
    """The report of one model. `named_by_settings`: the setting that names a model, by its name; `verified`: the result
    of the last verification by this process. Reads a stored check."""
    name, loaded = entry.name, usage.has_loaded(entry.name)
    stored = stored_check(store.directory, name, _files(store, entry)) if entry.source != "built-in" else None
    check: CheckResult | None = None
    problems: tuple[str, ...] = ()
    if verified is not None and verified.problems:
        check, problems = "failed", tuple(verified.problems)
    elif stored is not None:
        check = "failed" if stored.passed is None else "passed"
        problems = () if stored.failed is None else (stored.failed,)
    speed = usage.speed_of(name)
    if speed == ModelSpeed() and stored is not None and stored.passed is not None:
        speed = _checked_speed(stored.passed)
    return ModelReport(
        entry, loaded, _in_use(entry, loaded, named_by_settings), speed, download, name in checking, check, problems
    )


def _in_use(entry: ModelEntry, loaded: bool, named_by_settings: Mapping[str, str]) -> str | None:
    if entry.source == "built-in":
        return "It is built in"
    if setting := named_by_settings.get(entry.name):
        return f"The settings name it: [models] {setting}. Name another model there, and restart the server"
    if loaded:
        return (
            "The running server has loaded it, and calls may need it. Name another model of this kind in [models], and "
            "restart the server"
        )
    return None


def _files(store: ModelStore, entry: ModelEntry) -> list[Path]:
    if entry.file is not None:
        return [entry.file]
    return [] if entry.listed is None else [store.folder(entry.listed) / file.name for file in entry.listed.files]


def _checked_speed(values: Mapping[str, Any]) -> ModelSpeed:
    """The speed that a load check has measured, of another process on a machine that may have been busy."""
    tokens, factor = values.get("tokens_per_s"), values.get("real_time_factor")
    return ModelSpeed(
        tokens_per_s=tokens if isinstance(tokens, float) else None,
        real_time_factor=factor if isinstance(factor, float) else None,
    )
