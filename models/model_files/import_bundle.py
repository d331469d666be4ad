"""Imports models from a folder, a tar archive or a single file, for machines without access to a model hub.

Files are matched by SHA-256, or, if none is known, by name under a model that was named. No file is written under a
name from an archive; still an archive with names that lead out of it, or with links, is rejected.
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
from models.model_files.download import MAX_FILE_BYTES, MIN_FREE_BYTES, require_free_space
from models.model_files.known_models import KnownFile, KnownModel
from models.model_files.store import FileRecord, HashOrigin, ModelStore, disk_errors_as_model_file_errors

MAX_ENTRIES: Final = 10_000
"""Entries of one folder or archive, at most."""
MAX_HEADER_BYTES: Final = 64 * 1024
"""Bytes of a long name or a pax header, which tarfile reads into memory."""
_BLOCK: Final = 1 << 20
_STAGING_DIRECTORY: Final = ".import"
_EXTENSION_HEADERS: Final = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK
)  # fmt: skip

OnCopyProgress = Callable[[str, int, int], None]
"""Called with a file's name, its bytes copied so far, and its size in bytes."""


def _report_nothing(name: str, done: int, total: int) -> None:
    """The progress is not shown."""


ImportedFiles = dict[str, tuple[Path, FileRecord]]
"""Staged files of a model with their records, by name."""


@dataclass(frozen=True)
class _StagedCopy:
    """A staged copy of a file that may belong to a model."""

    name: str
    path: Path
    size: int
    sha256: str


class _BoundedHeader(tarfile.TarInfo):
    """A tar header with bounded names and pax headers."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0:  # tarfile may loop forever on these
            raise ModelFileError("the archive holds a file of negative size: it is no archive of models")
        if header.type in _EXTENSION_HEADERS and header.size > MAX_HEADER_BYTES:
            raise ModelFileError(f"the archive holds a name of {header.size} bytes: it is no archive of models")
        return header


async def import_models(
    store: ModelStore,
    source: Path,
    models: Sequence[KnownModel],
    on_wait: Callable[[], None] = lambda: None,
    *,
    on_progress: OnCopyProgress = _report_nothing,
    keep_free: int = MIN_FREE_BYTES,
) -> list[KnownModel]:
    """Import from `source` those of `models` whose files are all there; each file is verified. `on_wait` is called if
    another process holds the lock, `on_progress` on another thread. Raises `ModelFileError` if there is none; nothing
    has changed then."""
    with disk_errors_as_model_file_errors(store.directory):
        async with store.lock(_STAGING_DIRECTORY, on_wait):
            staging = store.directory / _STAGING_DIRECTORY
            try:
                complete = await asyncio.to_thread(_stage_models, staging, source, models, keep_free, on_progress)
                for model, files in complete:
                    async with store.lock(model.name, on_wait):
                        await asyncio.to_thread(store.install, model, files)
            finally:
                await asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True)
    return [model for model, _ in complete]


def _stage_models(
    staging: Path, source: Path, models: Sequence[KnownModel], keep_free: int, on_progress: OnCopyProgress
) -> list[tuple[KnownModel, ImportedFiles]]:
    """Copy the files of the models to the staging folder, and group them by model."""
    shutil.rmtree(staging, ignore_errors=True)  # left by an import that was killed
    staging.mkdir(parents=True)
    files = [file for model in models for file in model.files]
    with _archive_errors(source):
        copies = [
            _copy_to_stage(content, name, size, staging / str(number), keep_free, on_progress)
            for number, (name, size, content) in enumerate(_source_files(source, files))
        ]
    complete = [
        (model, own_files)
        for model in models
        if (own_files := _complete_files(model, copies, match_by_name=len(models) == 1))
    ]
    if not complete:
        raise ModelFileError(_nothing_found_message(source, models, copies))
    return _separate_copies(complete, staging, keep_free)


def _source_files(source: Path, files: Sequence[KnownFile]) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and content of each candidate file. Read each before the next."""
    if source.is_dir():
        yield from _files_in_directory(source, files)
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
        yield from _files_in_archive(source, files)


def _files_in_directory(source: Path, files: Sequence[KnownFile]) -> Iterator[tuple[str, int, IO[bytes]]]:
    for number, path in enumerate(source.rglob("*")):
        _require_few_entries(source, number)
        if path.is_symlink() and any(path.name == file.name for file in files):
            raise ModelFileError(f"{path} is a link: copy the files themselves (cp -rL)")
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as content:
                size = os.fstat(content.fileno()).st_size
                if _may_match(path.name, size, files):
                    yield path.name, size, content


def _files_in_archive(source: Path, files: Sequence[KnownFile]) -> Iterator[tuple[str, int, IO[bytes]]]:
    """The candidate files of a tar archive, compressed or not, read as a stream."""
    with tarfile.open(source, "r|*", tarinfo=_BoundedHeader) as archive:
        total_bytes = 0
        for number, member in enumerate(archive):
            _require_few_entries(source, number)
            total_bytes += member.size
            if total_bytes > MAX_FILE_BYTES:
                raise ModelFileError(f"{source} holds more than {MAX_FILE_BYTES >> 30} GiB: it is no archive of models")
            _check_member(source, member)
            name = PurePosixPath(member.name).name
            content = archive.extractfile(member) if member.isreg() and _may_match(name, member.size, files) else None
            if content is not None:
                yield name, member.size, content


@contextmanager
def _archive_errors(source: Path) -> Iterator[None]:
    """Turn errors of tarfile, also unexpected ones for malformed archives, into `ModelFileError`. Disk errors pass."""
    try:
        yield
    except (tarfile.TarError, EOFError, OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ModelFileError(f"{source} is no tar file, or a damaged one ({error}): copy it again") from error


def _check_member(source: Path, member: tarfile.TarInfo) -> None:
    """Raises `ModelFileError` for an entry that no archive of models has."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\0" in member.name:
        raise ModelFileError(f"{source} holds {member.name!r}, which leads out of it: nothing was imported")
    if not (member.isreg() or member.isdir()) or member.issparse() or member.size < 0:
        raise ModelFileError(f"{source} holds {member.name!r}, which is no plain file: pack files alone (tar -h)")


def _require_few_entries(source: Path, number: int) -> None:
    if number >= MAX_ENTRIES:
        raise ModelFileError(f"{source} holds more than {MAX_ENTRIES} files: give the folder of the models alone")


def _may_match(name: str, size: int, files: Sequence[KnownFile]) -> bool:
    return any(file.name == name and file.size in (None, size) for file in files)


def _copy_to_stage(
    content: IO[bytes], name: str, size: int, path: Path, keep_free: int, on_progress: OnCopyProgress = _report_nothing
) -> _StagedCopy:
    """Copy `size` bytes of a file. Raises `ModelFileError` if it is shorter."""
    require_free_space(path.parent, size, keep_free)
    digest, remaining = hashlib.sha256(), size
    with path.open("xb") as file:
        while remaining and (block := content.read(min(_BLOCK, remaining))):
            file.write(block)
            digest.update(block)
            remaining -= len(block)
            on_progress(name, size - remaining, size)
        file.flush()
        os.fsync(file.fileno())
    if remaining:
        raise ModelFileError(f"{name} ends {remaining} bytes too early: copy the source again")
    return _StagedCopy(name, path, size, digest.hexdigest())


def _complete_files(model: KnownModel, copies: Sequence[_StagedCopy], *, match_by_name: bool) -> ImportedFiles | None:
    """The files of a model, None unless all are there. `match_by_name`: a file without a known SHA-256 matches by its
    name."""
    files: ImportedFiles = {}
    for file in model.files:
        matching = [
            copy for copy in copies if copy.name == file.name and _matches(file, copy, match_by_name=match_by_name)
        ]
        if not matching:
            return None
        origin: HashOrigin = "first copy" if file.sha256 is None else "list"
        files[file.name] = matching[0].path, FileRecord(size=matching[0].size, sha256=matching[0].sha256, origin=origin)
    return files


def _matches(file: KnownFile, copy: _StagedCopy, *, match_by_name: bool) -> bool:
    if file.size not in (None, copy.size):
        return False
    return copy.sha256 == file.sha256 if file.sha256 is not None else match_by_name


def _separate_copies(
    complete: Sequence[tuple[KnownModel, ImportedFiles]], staging: Path, keep_free: int
) -> list[tuple[KnownModel, ImportedFiles]]:
    """Copies a file that two models have in common, because each model moves its own."""
    used_paths: set[Path] = set()
    for number, (_, files) in enumerate(complete):
        for name, (path, record) in files.items():
            if path in used_paths:
                with path.open("rb") as content:
                    copy = _copy_to_stage(content, name, record.size, staging / f"{number}-{name}", keep_free)
                files[name] = copy.path, record
            used_paths.add(path)
    return list(complete)


def _nothing_found_message(source: Path, models: Sequence[KnownModel], copies: Sequence[_StagedCopy]) -> str:
    """The error text when no model is complete; for one model with the missing file."""
    if len(models) > 1:
        return f"{source} holds no complete known model: name the model to see what is missing"
    model = models[0]
    for file in model.files:
        if not any(copy.name == file.name for copy in copies):
            size = "" if file.size is None else f" of {file.size} bytes"
            return f"{source} holds no {file.name}{size}, which {model.name} needs: add it"
    mismatched = next(
        file for file in model.files if not any(_matches(file, copy, match_by_name=True) for copy in copies)
    )
    wrong = f"{mismatched.name} is not the file that {model.name} means (SHA-256 {mismatched.sha256})"
    return f"{source}: {wrong}: get it again"
