"""All models of this machine: the built-in ones, the listed ones whether installed or not, and the operator's own GGUF
files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from config.errors import Conflict, StartupError
from models.loading import engines, loader
from models.model_files.known_models import Kind, KnownModel, read_known
from models.model_files.load_checker import LoadChecker
from models.model_files.store import ModelState, ModelStore

Source = Literal["built-in", "listed", "own"]
"""Part of this program, in the lists of known models, or a GGUF file that is in no list."""


@dataclass(frozen=True)
class ModelEntry:
    """A model. `size` in bytes; `licence` and `size` are None if unknown. `languages` are BCP 47 tags, "*" for many.
    `listed`: the entry of the list, None for others; `file`: the GGUF file of an own model, None for others."""

    kind: Kind
    name: str
    source: Source
    state: ModelState
    size: int | None = None
    licence: str | None = None
    languages: tuple[str, ...] = ()
    listed: KnownModel | None = None
    file: Path | None = None

    @property
    def missing_engine(self) -> str | None:
        """The engine of a listed model that this build does not have."""
        model = self.listed
        return None if model is None or engines.has_engine(model) else model.engine

    @property
    def hosts(self) -> list[str]:
        """The hosts that a download of the model connects to first."""
        model = self.listed
        return [] if model is None else sorted({str(urlsplit(model.url(file)).hostname) for file in model.files})

    @property
    def installed_files(self) -> str:
        """Where the files are, relative to `[models] dir`; "" for built-in models."""
        return self.name if self.listed is not None else "" if self.file is None else self.file.name


def built_in_models() -> Iterator[ModelEntry]:
    """The built-in models. Loads them all, to tell whether they can be used: takes seconds."""
    for kind, name, state in loader.built_in_states():
        problem = ModelState("ready") if state == "ready" else ModelState("unusable", state)
        yield ModelEntry(kind, name, "built-in", problem)


def unchecked_built_in_models() -> Iterator[ModelEntry]:
    """The built-in models, without a look at whether they can be used."""
    for kind, name in loader.built_in_kinds():
        yield ModelEntry(kind, name, "built-in", ModelState("ready"))


def listed_models(store: ModelStore) -> Iterator[ModelEntry]:
    """The models of the lists, in order of preference."""
    for model in store.known:
        yield ModelEntry(
            model.kind, model.name, "listed", store.state(model), model.size, model.licence, model.languages, model
        )


def own_files(store: ModelStore) -> dict[str, Path]:
    """GGUF files that are in no list, by name, in the order of preference of `auto`."""
    listed = {model.name for model in store.known}
    return {name: path for name, path in loader.gguf_files(store).items() if name not in listed}


def require_no_local_model(name: str, directory: Path) -> None:
    """Raises `Conflict` if a model of this machine has the name, whether installed or not, because settings select
    models by name. Reads `directory`, `[models] dir`."""
    known = read_known(directory)
    files = loader.gguf_files(ModelStore(directory, known))
    if name in {*(model.name for model in known), *files, *loader.built_in_names()}:
        raise Conflict(f"{name} is the name of a local model: choose another name")


def own_models(store: ModelStore, *, read_headers: bool = True) -> Iterator[ModelEntry]:
    """The language models in `own_files`. With `read_headers` another process reads each file's header, which takes a
    second the first time; a file that is no language model is unusable."""
    for name, path in own_files(store).items():
        state = _header_state(store, name, path) if read_headers else ModelState("ready")
        size = path.stat().st_size if path.is_file() else None
        yield ModelEntry("llm", name, "own", state, size, file=path)


def _header_state(store: ModelStore, name: str, path: Path) -> ModelState:
    try:
        engines.gguf_context_length(LoadChecker(store.directory), path, name)
    except StartupError as error:
        return ModelState("unusable", error.message)
    return ModelState("ready")
