"""Verification of installed models: their checksums, and a load check in another process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from config.errors import ModelFileError, StartupError
from models.loading import engines
from models.model_files.known_models import KnownModel
from models.model_files.load_checker import LoadChecker
from models.model_files.store import ModelStore


@dataclass(frozen=True)
class Verification:
    """`file_problems`: one line for each file that is missing or has changed; `load_problem`: why the load check fails.
    `load_checked`: the load check has passed."""

    file_problems: tuple[str, ...] = ()
    load_problem: str | None = None
    load_checked: bool = False

    @property
    def problems(self) -> list[str]:
        """All problems, none for an intact model."""
        return [*self.file_problems, *([] if self.load_problem is None else [self.load_problem])]


def verify_listed(store: ModelStore, model: KnownModel) -> Verification:
    """Read all files of a model, and repeat its load check, which takes seconds."""
    LoadChecker(store.directory).delete_results(model.name)
    problems = store.verify(model)
    if problems or not has_load_check(store, model):
        return Verification(tuple(problems))
    problem = load_problem(store, model)
    return Verification(load_problem=problem, load_checked=problem is None)


def verify_own(store: ModelStore, name: str, path: Path) -> Verification:
    """Repeat the load check of a GGUF file that is in no list, which takes seconds."""
    load_checker = LoadChecker(store.directory)
    load_checker.delete_results(name)
    try:
        engines.check_gguf_load(load_checker, path, name)
    except StartupError as error:
        return Verification(load_problem=error.message)
    return Verification(load_checked=True)


def has_load_check(store: ModelStore, model: KnownModel) -> bool:
    """True if the model is installed, and an engine runs it."""
    return engines.has_engine(model) and store.state(model).name == "ready"


def load_problem(store: ModelStore, model: KnownModel) -> str | None:
    """Why the load check of an installed model fails; None if it passes. A stored result is taken."""
    try:
        engines.check_model_load(store, model)
    except (StartupError, ModelFileError) as error:
        return error.message
    return None
