"""Imports models from a folder, a tarball or a single file, for machines that reach no model hub.

Files are known by what they hold, or, where no SHA-256 is known, by their name under a model that was asked for.
Nothing is ever written under a name that an archive gives; an archive with names that lead out of it, or with links, is
refused all the same, because it was not made to carry models.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final, Self

from config.errors import ModelFileError
from models.model_files.download import LARGEST, MIN_FREE_BYTES, need_space
from models.model_files.known_models import KnownFile, KnownModel
from models.model_files.store import FileRecord, ModelStore, Origin, disk_errors

ENTRIES_MAX: Final = 10_000
"""In one folder or archive."""
HEADER_MAX: Final = 64 * 1024
"""Bytes of a long name or of an archive's own remarks: they are read into memory whole."""
_BLOCK: Final = 1 << 20
_STAGE: Final = ".import"
_HEADERS: Final = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK
)  # fmt: skip

ImportedFiles = dict[str, tuple[Path, FileRecord]]
"""Files of a model that lie aside, with their records, by name."""


@dataclass(frozen=True)
class _Copy:
    """A file of the source that may be one of a model's."""

    name: str
    path: Path
    size: int
    sha256: str


class _Header(tarfile.TarInfo):
    """An archive's header that does not make the reader take gigabytes for a name."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0:  # some readers go round in circles on these
            raise ModelFileError("the archive holds a file of less than nothing: it was not made to carry models")
        if header.type in _HEADERS and header.size > HEADER_MAX:
            raise ModelFileError(f"the archive holds a name of {header.size} bytes: it was not made to carry models")
        return header


async def import_models(
    store: ModelStore,
    source: Path,
    wanted: Sequence[KnownModel],
    on_wait: Callable[[], None] = lambda: None,
    *,
    keep_free: int = MIN_FREE_BYTES,
) -> list[KnownModel]:
    """Take from `source` those of the wanted models of which every file is there; each file is checked. `on_wait` is
    told when another process is at it. Raises `ModelFileError` when there is none: then nothing has changed."""
    with disk_errors(store.directory):
        async with store.lock(_STAGE, on_wait):
            stage = store.directory / _STAGE
            try:
                found = await asyncio.to_thread(_staged, stage, source, wanted, keep_free)
                for model, files in found:
                    async with store.lock(model.name, on_wait):
                        await asyncio.to_thread(store.install, model, files)
            finally:
                await asyncio.to_thread(shutil.rmtree, stage, ignore_errors=True)
    return [model for model, _ in found]


def _staged(
    stage: Path, source: Path, wanted: Sequence[KnownModel], keep_free: int
) -> list[tuple[KnownModel, ImportedFiles]]:
    """Copy what belongs to the wanted models, and put it together."""
    shutil.rmtree(stage, ignore_errors=True)  # of an import that was killed
    stage.mkdir(parents=True)
    files = [file for model in wanted for file in model.files]
    with _readable(source):
        copies = [
            _copied(content, name, size, stage / str(number), keep_free)
            for number, (name, size, content) in enumerate(_entries(source, files))
        ]
    found = [(model, own) for model in wanted if (own := _complete_files(model, copies, alone=len(wanted) == 1))]
    if not found:
        raise ModelFileError(_why_nothing(source, wanted, copies))
    return _separate_copies(found, stage, keep_free)


def _entries(source: Path, files: Sequence[KnownFile]) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and content of each file that may be one of them. Each is to be read before the next."""
    if source.is_dir():
        yield from _of_folder(source, files)
    elif not source.is_file():
        raise ModelFileError(f"{source} is no file and no folder")
    elif any(file.name == source.name for file in files):
        with source.open("rb") as content:
            yield source.name, os.fstat(content.fileno()).st_size, content
    elif source.suffix == ".gguf":
        raise ModelFileError(
            f"{source} is not called like a file of a model that is wanted: rename it, or put a language model of your"
            " own into [models] dir as it is"
        )
    else:
        yield from _of_archive(source, files)


def _of_folder(source: Path, files: Sequence[KnownFile]) -> Iterator[tuple[str, int, IO[bytes]]]:
    for number, path in enumerate(source.rglob("*")):
        _count(source, number)
        if path.is_symlink() and any(path.name == file.name for file in files):
            raise ModelFileError(f"{path} is a link: copy the files themselves (cp -rL)")
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as content:
                size = os.fstat(content.fileno()).st_size
                if _may_match(path.name, size, files):
                    yield path.name, size, content


def _of_archive(source: Path, files: Sequence[KnownFile]) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Of a tar file, packed or not, read once from its beginning to its end."""
    with tarfile.open(source, "r|*", tarinfo=_Header) as archive:
        unpacked = 0
        for number, member in enumerate(archive):
            _count(source, number)
            unpacked += member.size
            if unpacked > LARGEST:
                raise ModelFileError(f"{source} holds more than {LARGEST >> 30} GiB: no models are so large")
            _check_member(source, member)
            name = PurePosixPath(member.name).name
            content = archive.extractfile(member) if member.isreg() and _may_match(name, member.size, files) else None
            if content is not None:
                yield name, member.size, content


@contextmanager
def _readable(source: Path) -> Iterator[None]:
    """Turn the errors of an archive into one line, those too that its reader does not foresee: numbers that are none, a
    name of a name of a name. Those of the disk pass."""
    try:
        yield
    except (tarfile.TarError, EOFError, OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ModelFileError(f"{source} is no tar file, or a damaged one ({error}): copy it again") from error


def _check_member(source: Path, member: tarfile.TarInfo) -> None:
    """Raise `ModelFileError` for what no archive of models holds."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\0" in member.name:
        raise ModelFileError(f"{source} holds {member.name!r}, which leads out of it: nothing was taken")
    if not (member.isreg() or member.isdir()) or member.issparse() or member.size < 0:
        raise ModelFileError(f"{source} holds {member.name!r}, which is no plain file: pack files alone (tar -h)")


def _count(source: Path, number: int) -> None:
    if number >= ENTRIES_MAX:
        raise ModelFileError(f"{source} holds more than {ENTRIES_MAX} files: give the folder of the models alone")


def _may_match(name: str, size: int, files: Sequence[KnownFile]) -> bool:
    return any(file.name == name and file.size in (None, size) for file in files)


def _copied(content: IO[bytes], name: str, size: int, path: Path, keep_free: int) -> _Copy:
    """Copy a file as far as it said it would go. Raises `ModelFileError` when it is shorter."""
    need_space(path.parent, size, keep_free)
    digest, left = hashlib.sha256(), size
    with path.open("xb") as file:
        while left and (block := content.read(min(_BLOCK, left))):
            file.write(block)
            digest.update(block)
            left -= len(block)
        file.flush()
        os.fsync(file.fileno())
    if left:
        raise ModelFileError(f"{name} ends {left} bytes too early: copy the source again")
    return _Copy(name, path, size, digest.hexdigest())


def _complete_files(model: KnownModel, copies: Sequence[_Copy], *, alone: bool) -> ImportedFiles | None:
    """The files of a model, when all are there. A file whose SHA-256 nobody knows is taken by its name, for a model
    that was asked for by name (`alone`)."""
    files: ImportedFiles = {}
    for file in model.files:
        fitting = [copy for copy in copies if copy.name == file.name and _matches(file, copy, alone=alone)]
        if not fitting:
            return None
        origin: Origin = "first copy" if file.sha256 is None else "list"
        files[file.name] = fitting[0].path, FileRecord(size=fitting[0].size, sha256=fitting[0].sha256, origin=origin)
    return files


def _matches(file: KnownFile, copy: _Copy, *, alone: bool) -> bool:
    if file.size not in (None, copy.size):
        return False
    return copy.sha256 == file.sha256 if file.sha256 is not None else alone


def _separate_copies(
    found: Sequence[tuple[KnownModel, ImportedFiles]], stage: Path, keep_free: int
) -> list[tuple[KnownModel, ImportedFiles]]:
    """The same with a copy for each: two models may have a file in common, and each takes its own away."""
    taken: set[Path] = set()
    for number, (_, files) in enumerate(found):
        for name, (path, record) in files.items():
            if path in taken:
                with path.open("rb") as content:
                    copy = _copied(content, name, record.size, stage / f"{number}-{name}", keep_free)
                files[name] = copy.path, record
            taken.add(path)
    return list(found)


def _why_nothing(source: Path, wanted: Sequence[KnownModel], copies: Sequence[_Copy]) -> str:
    """Why nothing was taken, for one model file by file."""
    if len(wanted) > 1:
        return f"{source} holds no whole model that is known: name the one that it should be, to hear what is missing"
    model = wanted[0]
    for file in model.files:
        if not any(copy.name == file.name for copy in copies):
            size = "" if file.size is None else f" of {file.size} bytes"
            return f"{source} holds no {file.name}{size}, which {model.name} needs: add it"
    wrong = next(file for file in model.files if not any(_matches(file, copy, alone=True) for copy in copies))
    return f"{source}: {wrong.name} is not the file that {model.name} means (SHA-256 {wrong.sha256}): get it again"
