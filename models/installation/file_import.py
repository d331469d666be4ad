"""Imports one file that somebody has: a file of a listed model, a bundle of models, or a language model of one's own.

What a file is follows from its content and, for files of listed models, its name and SHA-256. A file of a model with
several files is kept until the others are there, as a download keeps it."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import tarfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from config.errors import ModelFileError
from models.loading.loader import built_in_names
from models.model_files.download import require_free_space
from models.model_files.gguf_import import GGUF_MAGIC, import_gguf
from models.model_files.import_bundle import import_models
from models.model_files.known_models import KnownFile, KnownModel
from models.model_files.pull import pull
from models.model_files.store import ModelStore, disk_errors_as_model_file_errors, sha256_of

FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}")
"""The name of a file that can be imported: never a path, a hidden file or an option."""
_BLOCK_BYTES: Final = 1 << 20
_RESERVED_NAMES: Final = frozenset({"auto", "default", "off"})
_MAGIC: Final = (
    (b"PK\x03\x04", "a ZIP archive: unpack it, or pack a tar file"),
    (b"Rar!", "a RAR archive: unpack it, or pack a tar file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it, or pack a tar file"),
    (b"\x80\x02", "a PyTorch checkpoint, which nothing here loads: convert it to GGUF or ONNX"),
    (b"%PDF", "a PDF document"),
    (b"RIFF", "a sound file"),
    (
        b"\x08",
        "an ONNX network or voice that no list of models has: enter the model in known_models.json in [models] dir",
    ),
    (
        b"{",
        "a JSON file that belongs to no listed model: for a voice, import the files that its publisher has, unchanged",
    ),
)
"""How files begin that cannot be imported, and what they are."""


@dataclass(frozen=True)
class ImportResult:
    """`installed`: the models that are complete now; `missing`: for a model that is not, the files that it still
    needs; `left_out`: the models of a bundle that are not imported, with the cause."""

    installed: tuple[str, ...] = ()
    missing: tuple[tuple[str, tuple[str, ...]], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


def require_file_name(name: str) -> str:
    """Returns the name of a file that can be imported. Raises `ModelFileError`."""
    if FILE_NAME.fullmatch(name) is None:
        raise ModelFileError(f"{name[:128]!r} is no name for a model's file: letters, digits and _.+- are, at most 128")
    return name


def require_free_name(name: str, store: ModelStore, taken: Collection[str] = ()) -> str:
    """Returns the name for an own model. Raises `ModelFileError` if it is malformed, or another model has it: `taken`
    are the names of remote models."""
    if FILE_NAME.fullmatch(name) is None:
        raise ModelFileError(f"{name[:128]!r} cannot be the name of a model: letters, digits and _.+- can, at most 128")
    if name in {*built_in_names(), *taken, *(model.name for model in store.known), *_RESERVED_NAMES}:
        raise ModelFileError(f"another model is called {name}: choose another name")
    return name


async def import_file(
    store: ModelStore,
    source: Path,
    own_name: str | None = None,
    taken: Collection[str] = (),
    *,
    keep_free: int,
    on_progress: Callable[[str, int, int], None] = lambda _name, _done, _total: None,
) -> ImportResult:
    """Import a file by its content. `own_name`: for a language model of one's own, by default the file's name without
    `.gguf`. The source is copied and stays. Raises `ModelFileError`, which says what the file is, if it cannot be
    imported."""
    with disk_errors_as_model_file_errors(store.directory):
        begin = await asyncio.to_thread(_beginning, source)
        if own_name is None and (listed := await asyncio.to_thread(_listed_files, store, source)):
            return await _add_file(store, source, listed, keep_free, on_progress)
        if begin.startswith(GGUF_MAGIC):
            name = require_free_name(own_name or source.stem, store, taken)
            await import_gguf(
                store, source, name, on_progress=lambda done, total: on_progress(name, done, total), keep_free=keep_free
            )
            return ImportResult((name,))
        if await asyncio.to_thread(_is_tar, source):
            left_out: dict[str, str] = {}
            models = await import_models(
                store, source, store.known, on_progress=on_progress, on_left_out=left_out.__setitem__,
                keep_free=keep_free,
            )  # fmt: skip
            return ImportResult(tuple(model.name for model in models), left_out=tuple(left_out.items()))
    raise ModelFileError(f"{source.name} cannot be imported: it is {_what_it_is(begin)}")


def _beginning(source: Path) -> bytes:
    with source.open("rb") as file:
        return file.read(64)


def _is_tar(source: Path) -> bool:
    with suppress(OSError, EOFError, gzip.BadGzipFile):
        return tarfile.is_tarfile(source)
    return False


def _what_it_is(begin: bytes) -> str:
    if not begin:
        return "empty"
    found = next((text for magic, text in _MAGIC if begin.startswith(magic)), None)
    return found or "no GGUF file, no tar file of models, and no file of a listed model"


def _listed_files(store: ModelStore, source: Path) -> list[tuple[KnownModel, KnownFile]]:
    """The files of listed models that the source is, by SHA-256. Raises `ModelFileError` for one that is called like
    such a file, and is another."""
    size = source.stat().st_size
    named = [(model, file) for model in store.known for file in model.files if file.name == source.name]
    sized = [
        (model, file) for model in store.known for file in model.files if file.sha256 is not None and file.size == size
    ]
    if not named and not sized:
        return []
    sha256 = sha256_of(source).hexdigest()
    found = [(model, file) for model, file in sized if file.sha256 == sha256]
    if not found and named:
        model, file = named[0]
        raise ModelFileError(
            f"{source.name} is not the file that {model.name} means"
            f"{'' if file.sha256 is None else f' (SHA-256 {file.sha256})'}: get it again, or, for a language model of "
            "your own, rename it"
        )
    return found


async def _add_file(
    store: ModelStore,
    source: Path,
    listed: Sequence[tuple[KnownModel, KnownFile]],
    keep_free: int,
    on_progress: Callable[[str, int, int], None],
) -> ImportResult:
    """Keep a verified file for each model that it belongs to, and install the models that are complete now."""
    installed: list[str] = []
    missing: list[tuple[str, tuple[str, ...]]] = []
    for model, file in listed:
        async with store.lock(model.name, partial(_refuse_to_wait, model.name)):
            await asyncio.to_thread(_keep_as_part, store, model, file, source, keep_free, on_progress)
        lacking = await asyncio.to_thread(_missing_files, store, model)
        if lacking:
            missing.append((model.name, tuple(lacking)))
        else:
            await pull(store, model, keep_free=keep_free)  # verifies and installs: nothing is left to download
            installed.append(model.name)
    return ImportResult(tuple(installed), tuple(missing))


def _refuse_to_wait(name: str) -> None:
    raise ModelFileError(f"{name} is being downloaded or imported now: wait for that, or stop it")


def _keep_as_part(
    store: ModelStore,
    model: KnownModel,
    file: KnownFile,
    source: Path,
    keep_free: int,
    on_progress: Callable[[str, int, int], None],
) -> None:
    """Copy a file to where a download would have put it, unless it is there or installed."""
    if store.intact_record(model, file) is not None:
        return
    part, size = store.part(model, file), source.stat().st_size
    part.parent.mkdir(parents=True, exist_ok=True)
    part.unlink(missing_ok=True)
    require_free_space(part.parent, size, keep_free)
    done = 0
    with source.open("rb") as content, part.open("xb") as copy:
        while block := content.read(_BLOCK_BYTES):
            copy.write(block)
            done += len(block)
            on_progress(file.name, done, size)
        copy.flush()
        os.fsync(copy.fileno())


def _missing_files(store: ModelStore, model: KnownModel) -> list[str]:
    """The names of a model's files that are neither installed nor kept completely."""

    def is_kept(file: KnownFile) -> bool:
        part = store.part(model, file)
        return file.size is not None and part.is_file() and part.stat().st_size == file.size

    return [file.name for file in model.files if not is_kept(file) and store.intact_record(model, file) is None]
