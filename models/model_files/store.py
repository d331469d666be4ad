"""The store of model files, `[models] dir`/NAME/FILE, and their verification.

Beside the files of a model lies `manifest.json` with the SHA-256 of each. It is written last, so that a model without
one is not there, and it is what the files are compared with from then on. What is being got lies in `.parts`.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from config.errors import ModelFileError
from models.model_files.known_models import Kind, KnownFile, KnownModel, Name, Sha256

MANIFEST: Final = "manifest.json"
PARTS: Final = ".parts"
_LOCKS: Final = ".locks"
_BLOCK: Final = 1 << 20
"""Bytes that are read at a time."""
_ASK_AGAIN_S: Final = 0.2
"""`flock` has no form that waits and can be cancelled."""

Origin = Literal["list", "host", "first copy"]
"""Who says what a file's SHA-256 is: the list of known models, the host that it came from, or nobody but the first copy
that came."""
StateName = Literal["ready", "missing package", "not pulled", "damaged"]


class FileRecord(BaseModel):
    """What a file was when it came."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    size: Annotated[int, Field(ge=0)]
    sha256: Sha256
    origin: Origin


class Manifest(BaseModel):
    """The record of a model's files, by their names."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: Name
    files: dict[Name, FileRecord]


@dataclass(frozen=True)
class ModelState:
    """How a model stands; `detail` says more, or nothing."""

    name: StateName
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}" if self.detail else self.name


class ModelStore:
    """The files of all models. Every method but `held` reads or writes files: call it in a thread."""

    def __init__(self, directory: Path, known: Sequence[KnownModel]) -> None:
        self.directory = directory
        self.known = known

    def folder(self, model: KnownModel) -> Path:
        """Where its files lie."""
        return self.directory / model.name

    def part(self, model: KnownModel, file: KnownFile) -> Path:
        """Where a file is put together while it comes."""
        return self.directory / PARTS / model.name / file.name

    def path(self, model: KnownModel, role: str) -> Path:
        """Where the file of a role lies, for the engine. Raises `ModelFileError` for a model that has none."""
        for file in model.files:
            if file.role == role:
                return self.folder(model) / file.name
        raise ModelFileError(f"the model {model.name} has no file for {role!r}")

    def ready(self, kind: Kind, language: str | None = None) -> list[KnownModel]:
        """Models that can be loaded, the best first."""
        candidates = [model for model in self.known if model.kind == kind and model.speaks(language)]
        return [model for model in candidates if self.state(model).name == "ready"]

    def manifest(self, model: KnownModel) -> Manifest | None:
        """The record of a model; None when there is none that can be read."""
        try:
            manifest = Manifest.model_validate_json((self.folder(model) / MANIFEST).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            return None
        return manifest if manifest.model == model.name else None

    def state(self, model: KnownModel) -> ModelState:
        """How a model stands, by the sizes of its files; `verify` reads them whole."""
        manifest = self.manifest(model)
        if manifest is None:
            return self._absent(model)
        for file in model.files:
            if problem := self._problem(model, file, manifest):
                return ModelState("damaged", problem)
        if model.missing_package is not None:
            return ModelState("missing package", model.missing_package)
        return ModelState("ready")

    def verify(self, model: KnownModel) -> list[str]:
        """What is wrong with a model's files, each read whole: one line each. Raises `OSError`."""
        manifest = self.manifest(model)
        if manifest is None:
            return ["is not pulled"]
        return [problem for file in model.files if (problem := self._problem(model, file, manifest, whole=True))]

    def intact_record(self, model: KnownModel, file: KnownFile) -> FileRecord | None:
        """The record of a file that is there and is right, read whole; None when it has to be got."""
        manifest = self.manifest(model)
        if manifest is None or self._problem(model, file, manifest, whole=True):
            return None
        return manifest.files[file.name]

    def install(self, model: KnownModel, files: Mapping[str, tuple[Path, FileRecord]]) -> None:
        """Put files, by name, in the place of what was there, and write the record. Each was checked, and lies on the
        same disk. Whoever has an old one open keeps it. Raises `OSError`."""
        folder = self.folder(model)
        folder.mkdir(parents=True, exist_ok=True)
        manifest = self.manifest(model)
        records = {**(manifest.files if manifest else {}), **{name: record for name, (_, record) in files.items()}}
        for name, (path, _) in files.items():
            path.replace(folder / name)
        sync_folder(folder)
        names = {file.name for file in model.files}
        record = Manifest(model=model.name, files={name: each for name, each in records.items() if name in names})
        write_whole(folder / MANIFEST, record.model_dump_json(indent=1).encode())
        sync_folder(self.directory)
        shutil.rmtree(self.directory / PARTS / model.name, ignore_errors=True)

    @asynccontextmanager
    async def lock(self, name: str, on_wait: Callable[[], None]) -> AsyncIterator[None]:
        """For the block, no other process changes the files of that model; `on_wait` is told when another does now.
        The lock ends with the process. Raises `OSError`."""
        handle = await asyncio.to_thread(self._open_lock, name)
        try:
            if not _taken(handle):
                on_wait()
                while not _taken(handle):  # noqa: ASYNC110 - another process tells nobody when it is done
                    await asyncio.sleep(_ASK_AGAIN_S)
            yield
        finally:
            os.close(handle)

    def _open_lock(self, name: str) -> int:
        folder = self.directory / _LOCKS
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(PermissionError):  # who can read a file can lock it
            os.fchmod(handle, 0o600)
        return handle

    def _absent(self, model: KnownModel) -> ModelState:
        if self.folder(model).is_dir() and any(self.folder(model).iterdir()):
            return ModelState("damaged", f"{MANIFEST} is missing")
        received = sum(size for file in model.files if (size := _size(self.part(model, file))) is not None)
        if not received:
            return ModelState("not pulled")
        return ModelState(
            "not pulled", f"{received * 100 // model.size} % is here" if model.size else f"{received} bytes are here"
        )

    def _problem(self, model: KnownModel, file: KnownFile, manifest: Manifest, *, whole: bool = False) -> str | None:
        """What is wrong with a file, if anything is."""
        record = manifest.files.get(file.name)
        path = self.folder(model) / file.name
        size = _size(path)
        if size is None or record is None:
            return f"{file.name} is missing"
        if file.sha256 not in (None, record.sha256) or file.size not in (None, record.size):
            return f"{file.name} is of another version than the one that is known"
        if size != record.size:
            return f"{file.name} has {size} bytes in the place of {record.size}"
        if whole and sha256_of(path).hexdigest() != record.sha256:
            return f"{file.name} has changed since it came"
        return None


@contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """Turn the errors of the disk into one line with a remedy."""
    try:
        yield
    except OSError as error:
        where = error.filename or directory
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelFileError(
                f"there is no room left in {directory}: free some and run the command again, it goes on from there"
            ) from error
        raise ModelFileError(
            f"{where}: {error.strerror or error}: see what this user may do there, or set another [models] dir"
        ) from error


def sha256_of(path: Path) -> hashlib._Hash:
    """The hash of what a file holds, to go on with. Raises `OSError`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, whatever happens. Raises `OSError`."""
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have a folder's new names on the disk. Raises `OSError`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
