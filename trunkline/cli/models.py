"""`trunkline models`: which there are, getting them, taking them from elsewhere, and whether they have changed."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from config.errors import ModelFileError, StartupError
from config.settings import Settings
from models.model_files.known_models import KINDS, KnownFile, KnownModel, find, read_known
from models.model_files.store import ModelStore, disk_errors
from models.model_files.trial import ModelTrials
from trunkline.cli.table import table

_COLUMNS = {
    "kind": "KIND", "name": "NAME", "size": "SIZE", "licence": "LICENCE", "languages": "LANGUAGES", "state": "STATE"
}  # fmt: skip
_ORIGINS = {
    "list": "as it should be",
    "host": "as its host says; kept from now on",
    "first copy": "which nobody could vouch for; kept from now on",
}
_PLACES = {str(kind): place for place, kind in enumerate(KINDS)}
_SHARED = 0o022
"""The umask for models: they are no secrets, and servers of several users may share a folder of them."""
_STEP = 10
"""Percent between two lines of progress where nobody watches."""
_BYTES = 10**8
"""Between two lines of progress where nobody knows how much will come."""


def add_arguments(
    pull_it: argparse.ArgumentParser, verify_it: argparse.ArgumentParser, bring_it: argparse.ArgumentParser
) -> None:
    """What the commands take."""
    name = "as `trunkline models list` shows it"
    pull_it.add_argument("names", nargs="+", metavar="NAME", help=name)
    verify_it.add_argument("names", nargs="*", metavar="NAME", help=f"{name} (default: all that are installed)")
    bring_it.add_argument("source", type=Path, metavar="PATH", help="a folder, a tar file, or one file of a model")
    bring_it.add_argument("name", nargs="?", metavar="NAME", help="only this model (default: all that are complete)")


async def list_models(options: argparse.Namespace, settings: Settings) -> int:
    """Print every model, those of a kind together."""
    store = await _store(settings)
    with disk_errors(store.directory):
        rows = await asyncio.to_thread(_rows, store) + await _remote_rows(settings)
    for line in table(_COLUMNS, sorted(rows, key=lambda row: _PLACES[row["kind"]])):
        print(line)
    return 0


async def pull_all(options: argparse.Namespace, settings: Settings) -> int:
    """Get models one after the other."""
    from models.model_files.pull import pull

    os.umask(_SHARED)
    store = await _store(settings)
    for model in [find(store.known, name) for name in options.names]:
        progress = _Progress(model)
        come = await pull(store, model, progress.show, _waits_for(model.name))
        progress.end()
        for name, record in come.items():
            print(f"{model.name}: {name}, {size_of(record.size)}, SHA-256 {record.sha256}, {_ORIGINS[record.origin]}")
        print(f"{model.name}: {'' if come else 'was here already, '}{await _stands(store, model)}")
    return 0


async def verify(options: argparse.Namespace, settings: Settings) -> int:
    """Print a line for each model, more for one that has changed; 1 when one has, or when it fails its trial, which is
    made anew."""
    store = await _store(settings)
    with disk_errors(store.directory):
        own = await asyncio.to_thread(_own_files, store)
        names = options.names or [*await asyncio.to_thread(_here, store), *own]
        failed = 0
        for name in names:
            if name not in own:
                find(store.known, name)
        for name in names:
            problems, good = await asyncio.to_thread(_examined, store, name, own.get(name))
            failed += bool(problems)
            for problem in problems:
                print(f"FAIL  {name}: {problem}")
            if not problems:
                print(f"ok    {name}: {good}")
    if not names:
        print(f"there are no model files in {store.directory}")
    return 1 if failed else 0


async def import_bundle(options: argparse.Namespace, settings: Settings) -> int:
    """Take models from a folder or an archive."""
    from models.model_files.import_bundle import import_models

    os.umask(_SHARED)
    store = await _store(settings)
    wanted = [find(store.known, options.name)] if options.name else store.known
    for model in await import_models(store, options.source, wanted, _waits_for("another import")):
        print(f"{model.name}: {await _stands(store, model)}")
    return 0


async def _store(settings: Settings) -> ModelStore:
    return ModelStore(settings.models_dir, await asyncio.to_thread(read_known, settings.models_dir))


def _rows(store: ModelStore) -> list[dict[str, str]]:
    from models.loading.loader import built_in  # loads every engine: the other commands must not wait for it

    rows = [{"kind": kind, "name": name, "size": "-", "licence": "-", "languages": "-", "state": state}
            for kind, name, state in built_in()]  # fmt: skip
    rows += [
        {
            "kind": model.kind,
            "name": model.name,
            "size": "-" if model.size is None else size_of(model.size),
            "licence": model.licence,
            "languages": _languages(model),
            "state": _standing(store, model),
        }
        for model in store.known
    ]
    return rows + list(_own_rows(store))


def _own_files(store: ModelStore) -> dict[str, Path]:
    """GGUF files that the list does not know, by name."""
    from models.loading.loader import gguf_files

    known = {model.name for model in store.known}
    return {name: path for name, path in gguf_files(store).items() if name not in known}


def _examined(store: ModelStore, name: str, own: Path | None) -> tuple[list[str], str]:
    """What is wrong with a model, and what is said when nothing is; `own` is the file of one that the list does not
    know. Reads all of it, and tries it."""
    from models.loading import engines

    trials = ModelTrials(store.directory)
    trials.forget(name)
    if own is not None:
        try:
            engines.trial_gguf(trials, own, name)
        except StartupError as error:
            return [error.message], ""
        return [], f"{own.name}, passed its trial"
    model = find(store.known, name)
    problems = [f"{problem}: run `trunkline models pull {name}`" for problem in store.verify(model)]
    count = "1 file" if len(model.files) == 1 else f"{len(model.files)} files"
    if problems or not _is_tried(store, model):
        return problems, count
    problem = _trial_problem(store, model)
    return [problem] if problem else [], f"{count}, passed its trial"


def _is_tried(store: ModelStore, model: KnownModel) -> bool:
    from models.loading.engines import has_engine

    return has_engine(model) and store.state(model).name == "ready"


def _trial_problem(store: ModelStore, model: KnownModel) -> str | None:
    """Why a model does not run here; None when it does."""
    from models.loading import engines

    try:
        engines.trial_model(store, model)
    except (StartupError, ModelFileError) as error:
        return error.message
    return None


def _own_rows(store: ModelStore) -> Iterator[dict[str, str]]:
    """Language models that the list does not know, behind those that it does, as `auto` takes them."""
    from models.loading.engines import gguf_context_length

    for name, path in _own_files(store).items():
        try:
            gguf_context_length(ModelTrials(store.directory), path, name)
            state = "ready"
        except StartupError as error:
            state = error.message
        size = size_of(path.stat().st_size) if path.is_file() else "-"
        yield {"kind": "llm", "name": name, "size": size, "licence": "-", "languages": "-", "state": state}


def _standing(store: ModelStore, model: KnownModel) -> str:
    """How a model stands, and whether anything here would run it."""
    from models.loading.engines import has_engine

    state = store.state(model)
    return str(state) if has_engine(model) else f"{state}, but {model.engine} runs no {model.kind} here"


async def _remote_rows(settings: Settings) -> list[dict[str, str]]:
    from storage.agents import remote_models
    from trunkline.admin import open_database

    async with open_database(settings) as database:
        return [
            {"kind": each.kind, "name": each.name, "size": "-", "licence": "-", "languages": "-", "state": "remote"}
            for each in await database.read(remote_models.all_of)
        ]


def _here(store: ModelStore) -> list[str]:
    return [model.name for model in store.known if store.state(model).name != "not pulled"]


async def _stands(store: ModelStore, model: KnownModel) -> str:
    """How a model stands that has just come, after its trial."""
    standing = await asyncio.to_thread(_standing, store, model)
    if not await asyncio.to_thread(_is_tried, store, model):
        return standing
    problem = await asyncio.to_thread(_trial_problem, store, model)
    return standing if problem is None else f"{standing}, but {problem}"


def _waits_for(what: str) -> Callable[[], None]:
    return lambda: print(f"waiting for another process that is at {what}", file=sys.stderr, flush=True)


def _languages(model: KnownModel) -> str:
    """At most five by name."""
    if len(model.languages) > 5:
        return f"{len(model.languages)} languages"
    return "many" if model.languages == ("*",) else ",".join(model.languages)


def size_of(count: int) -> str:
    """Bytes in the unit that fits."""
    for unit, step in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count} B"


class _Progress:
    """How a model comes: one line that changes on a terminal, a line for every tenth of a file elsewhere."""

    def __init__(self, model: KnownModel) -> None:
        self._model = model
        self._watched = sys.stderr.isatty()
        self._shown: tuple[str, int] | None = None

    def show(self, file: KnownFile, done: int, total: int | None) -> None:
        """Tell where it is."""
        percent = done * 100 // total if total else 0
        pace = percent // (1 if self._watched else _STEP) if total else done // _BYTES
        if (file.name, pace) == self._shown:
            return
        self._shown = file.name, pace
        of = f" of {size_of(total)}, {percent} %" if total else ""
        begin, end = ("\r\x1b[K", "") if self._watched else ("", "\n")
        print(f"{begin}{self._model.name}: {file.name}: {size_of(done)}{of}", end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._watched and self._shown:
            print(file=sys.stderr)
