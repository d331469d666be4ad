"""Imports models from a folder, a tar archive or a single file, for machines without access to a model hub.

Files are matched by SHA-256. One without a known SHA-256 is matched by the contents of a bundle, else by its name, if
its model was named. No file is written under a name from an archive; still an archive with names that lead out of it,
or with links, is rejected.
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
from models.model_files.bundle_contents import CONTENTS, MAX_CONTENTS_BYTES, BundleContents, read_contents
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


OnLeftOut = Callable[[str, str], None]
"""Called with the name of a bundle's model that is not imported, and the cause."""
ImportedFiles = dict[str, tuple[Path, FileRecord]]
"""Staged files of a model with their records, by name."""


@dataclass(frozen=True)
class _SourceFile:
    """A file of the source that may belong to a model. `folder`: the name of the one that it is in, "" at the top."""

    name: str
    folder: str
    size: int
    content: IO[bytes]

    @property
    def is_contents(self) -> bool:
        """True for the contents of a bundle."""
        return (self.folder, self.name) == ("", CONTENTS)


@dataclass(frozen=True)
class _StagedCopy:
    """A staged copy of a file that may belong to a model; `folder` as in the source."""

    name: str
    folder: str
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
    on_left_out: OnLeftOut = lambda _name, _cause: None,
    keep_free: int = MIN_FREE_BYTES,
) -> list[KnownModel]:
    """Import from `source` those of `models` whose files are all there; each file is verified. `on_wait` is called if
    another process holds the lock, `on_progress` on another thread. Raises `ModelFileError` if there is none, or a file
    of a bundle is damaged; nothing has changed then."""
    with disk_errors_as_model_file_errors(store.directory):
        async with store.lock(_STAGING_DIRECTORY, on_wait):
            staging = store.directory / _STAGING_DIRECTORY
            try:
                complete, left_out = await asyncio.to_thread(
                    _stage_models, store, source, models, keep_free, on_progress
                )
                for model, files in complete:
                    async with store.lock(model.name, on_wait):
                        await asyncio.to_thread(store.install, model, files)
            finally:
                await asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True)
    for name, cause in left_out.items():
        on_left_out(name, cause)
    return [model for model, _ in complete]


def _stage_models(
    store: ModelStore, source: Path, models: Sequence[KnownModel], keep_free: int, on_progress: OnCopyProgress
) -> tuple[list[tuple[KnownModel, ImportedFiles]], dict[str, str]]:
    """Copy the files of the models to the staging folder, and group them by model. Returns also the causes why models
    of a bundle are left out, by name."""
    staging = store.directory / _STAGING_DIRECTORY
    shutil.rmtree(staging, ignore_errors=True)  # left by an import that was killed
    staging.mkdir(parents=True)
    files = [file for model in models for file in model.files]
    contents, copies = None, []
    with _archive_errors(source):
        for number, each in enumerate(_source_files(source, files)):
            if each.is_contents:
                contents = read_contents(each.content.read(MAX_CONTENTS_BYTES))
            else:
                copies.append(_copy_to_stage(each, staging / str(number), keep_free, on_progress))
    matching = _Matching(source, store, copies, contents, is_named=len(models) == 1)
    complete = [(model, own_files) for model in models if (own_files := matching.files_of(model))]
    left_out = matching.left_out(models)
    if not complete:
        raise ModelFileError(matching.nothing_found_message(models))
    return _separate_copies(complete, staging, keep_free), left_out


def _source_files(source: Path, files: Sequence[KnownFile]) -> Iterator[_SourceFile]:
    """The candidate files, and the contents of a bundle. Read each before the next."""
    if source.is_dir():
        yield from _files_in_directory(source, files)
    elif not source.is_file():
        raise ModelFileError(f"{source} is no file and no folder")
    elif any(file.name == source.name for file in files):
        with source.open("rb") as content:
            yield _SourceFile(source.name, "", os.fstat(content.fileno()).st_size, content)
    elif source.suffix == ".gguf":
        raise ModelFileError(
            f"{source} is not called like a file of a model that is wanted: rename it, or put a language model of your"
            " own into [models] dir as it is"
        )
    else:
        yield from _files_in_archive(source, files)


def _files_in_directory(source: Path, files: Sequence[KnownFile]) -> Iterator[_SourceFile]:
    for number, path in enumerate(source.rglob("*")):
        _require_few_entries(source, number)
        if path.is_symlink() and any(path.name == file.name for file in files):
            raise ModelFileError(f"{path} is a link: copy the files themselves (cp -rL)")
        if path.is_file() and not path.is_symlink():
            folder = "" if path.parent == source else path.parent.name
            with path.open("rb") as content:
                file = _SourceFile(path.name, folder, os.fstat(content.fileno()).st_size, content)
                if _may_match(file, files):
                    yield file


def _files_in_archive(source: Path, files: Sequence[KnownFile]) -> Iterator[_SourceFile]:
    """The candidate files of a tar archive, compressed or not, read as a stream."""
    with tarfile.open(source, "r|*", tarinfo=_BoundedHeader) as archive:
        total_bytes = 0
        for number, member in enumerate(archive):
            _require_few_entries(source, number)
            total_bytes += member.size
            if total_bytes > MAX_FILE_BYTES:
                raise ModelFileError(f"{source} holds more than {MAX_FILE_BYTES >> 30} GiB: it is no archive of models")
            _check_member(source, member)
            path = PurePosixPath(member.name)
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                file = _SourceFile(path.name, path.parent.name, member.size, content)
                if _may_match(file, files):
                    yield file


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


def _may_match(file: _SourceFile, files: Sequence[KnownFile]) -> bool:
    return file.is_contents or any(each.name == file.name and each.size in (None, file.size) for each in files)


def _copy_to_stage(
    source_file: _SourceFile, path: Path, keep_free: int, on_progress: OnCopyProgress = _report_nothing
) -> _StagedCopy:
    """Copy a file. Raises `ModelFileError` if it is shorter than its size."""
    name, size, content = source_file.name, source_file.size, source_file.content
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
    return _StagedCopy(name, source_file.folder, path, size, digest.hexdigest())


class _Matching:
    """Which staged copies are the files of which model. `is_named`: the one model was named, so that a file without a
    known SHA-256 may match by its name. Raises `ModelFileError` if a copy is not what the bundle says."""

    def __init__(
        self,
        source: Path,
        store: ModelStore,
        copies: Sequence[_StagedCopy],
        contents: BundleContents | None,
        *,
        is_named: bool,
    ) -> None:
        self._source = source
        self._store = store
        self._copies = copies
        self._contents = contents
        self._is_named = is_named
        for copy in copies:
            told = contents.file(copy.folder, copy.name) if contents else None
            if told is not None and (told.size, told.sha256) != (copy.size, copy.sha256):
                raise ModelFileError(f"{source}: {copy.folder}/{copy.name} is damaged: copy the bundle again")

    def files_of(self, model: KnownModel) -> ImportedFiles | None:
        """The files of a model; None unless all are there and may be installed."""
        files: ImportedFiles = {}
        for file in model.files:
            matching = self._matching(model, file)
            if not matching:
                return None
            origin: HashOrigin = "first copy" if file.sha256 is None else "list"
            record = FileRecord(size=matching[0].size, sha256=matching[0].sha256, origin=origin)
            files[file.name] = matching[0].path, record
        return None if self._would_replace(model, files) else files

    def left_out(self, models: Sequence[KnownModel]) -> dict[str, str]:
        """Why models of the bundle cannot be imported, by name. Empty if one was named, and without a bundle."""
        if self._contents is None or self._is_named:
            return {}
        known = {model.name: model for model in models}
        names = [each.name for each in self._contents.models]
        return {name: cause for name in names if (cause := self._cause(known.get(name)))}

    def _cause(self, model: KnownModel | None) -> str | None:
        if model is None:
            return (
                "is not in the lists of this machine: copy known_models.json in [models] dir from the other one first"
            )
        for file in model.files:
            if not self._matching(model, file):
                is_there = self._contents is not None and self._contents.file(model.name, file.name) is not None
                state = "is of another version than the one that is known here" if is_there else "is missing in it"
                return f"{file.name} {state}"
        if self.files_of(model) is None:
            return "is installed with other files, which no list confirms: name it to replace them"
        return None

    def _matching(self, model: KnownModel, file: KnownFile) -> list[_StagedCopy]:
        """The copies that are this file. Raises `ModelFileError` if several different ones may be."""
        fitting = [copy for copy in self._copies if copy.name == file.name and file.size in (None, copy.size)]
        if file.sha256 is not None:
            return [copy for copy in fitting if copy.sha256 == file.sha256]
        own = [copy for copy in fitting if copy.folder == model.name]
        if self._contents is not None:
            return own if self._contents.file(model.name, file.name) else []
        if not self._is_named:
            return []
        if len({copy.sha256 for copy in own or fitting}) > 1:
            raise ModelFileError(
                f"{self._source} holds different files that are called {file.name}: put those of {model.name} into a "
                "folder of this name"
            )
        return own or fitting

    def _would_replace(self, model: KnownModel, files: ImportedFiles) -> bool:
        """True if other files are installed that are known by their first copy alone, and the model was not named."""
        manifest = None if self._is_named else self._store.manifest(model)
        installed = {} if manifest is None else manifest.files
        return any(
            record.origin == "first copy" and name in installed and installed[name].sha256 != record.sha256
            for name, (_, record) in files.items()
        )

    def nothing_found_message(self, models: Sequence[KnownModel]) -> str:
        """The error text when no model is complete; for one model with the missing file."""
        if not self._is_named:
            causes = "; ".join(f"{name} {cause}" for name, cause in self.left_out(models).items())
            return f"{self._source} holds no complete known model: {causes or 'name the model to see what is missing'}"
        (model,) = models
        for file in model.files:
            if not any(copy.name == file.name for copy in self._copies):
                size = "" if file.size is None else f" of {file.size} bytes"
                return f"{self._source} holds no {file.name}{size}, which {model.name} needs: add it"
        faulty = next(file for file in model.files if not self._matching(model, file))
        if faulty.sha256 is None:
            return f"{self._source} holds no {model.name}/{faulty.name}: it is a bundle of other models"
        wrong = f"{faulty.name} is not the file that {model.name} means (SHA-256 {faulty.sha256})"
        return f"{self._source}: {wrong}: get it again"


def _separate_copies(
    complete: Sequence[tuple[KnownModel, ImportedFiles]], staging: Path, keep_free: int
) -> list[tuple[KnownModel, ImportedFiles]]:
    """Copies a file that two models have in common, because each model moves its own."""
    used_paths: set[Path] = set()
    for number, (_, files) in enumerate(complete):
        for name, (path, record) in files.items():
            if path in used_paths:
                with path.open("rb") as content:
                    shared = _SourceFile(name, "", record.size, content)
                    copy = _copy_to_stage(shared, staging / f"{number}-{name}", keep_free)
                files[name] = copy.path, record
            used_paths.add(path)
    return list(complete)
