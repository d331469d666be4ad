"""The store of model files, `[models] dir`/NAME/FILE, and their verification.

`manifest.json` in a model's folder has the SHA-256 of each file. It is written last, so that a model without a manifest
is not installed. Downloads in progress are in `.parts`.
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
_BLOCK_BYTES: Final = 1 << 20
"""Bytes of a read."""
_LOCK_POLL_S: Final = 0.2
"""Seconds between attempts, because a blocking `flock` cannot be cancelled."""

HashOrigin = Literal["list", "host", "first copy"]
"""Source of a file's SHA-256: the list of known models, the download's host, or the first copy (trust on first use)."""
ModelStateName = Literal["ready", "missing package", "not pulled", "damaged", "unusable"]
"""`unusable`: intact, but it cannot be loaded."""


class FileRecord(BaseModel):
    """Size and SHA-256 of a file when it was installed."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    size: Annotated[int, Field(ge=0)]
    sha256: Sha256
    origin: HashOrigin


class Manifest(BaseModel):
    """The records of a model's files, by name."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: Name
    files: dict[Name, FileRecord]


@dataclass(frozen=True)
class ModelState:
    """The state of a model; `detail` may be empty."""

    name: ModelStateName
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}" if self.detail else self.name


class ModelStore:
    """The files of all models. All methods but `lock` do blocking file I/O: call them in a thread."""

    def __init__(self, directory: Path, known: Sequence[KnownModel]) -> None:
        self.directory = directory
        self.known = known

    def folder(self, model: KnownModel) -> Path:
        """The folder of a model."""
        return self.directory / model.name

    def part(self, model: KnownModel, file: KnownFile) -> Path:
        """The part file of a download."""
        return self.directory / PARTS / model.name / file.name

    def path(self, model: KnownModel, role: str) -> Path:
        """The path of the file with a role. Raises `ModelFileError` if the model has none."""
        for file in model.files:
            if file.role == role:
                return self.folder(model) / file.name
        raise ModelFileError(f"the model {model.name} has no file for {role!r}")

    def ready(self, kind: Kind, language: str | None = None) -> list[KnownModel]:
        """The models of a kind that can be loaded, the best first."""
        candidates = [model for model in self.known if model.kind == kind and model.supports_language(language)]
        return [model for model in candidates if self.state(model).name == "ready"]

    def manifest(self, model: KnownModel) -> Manifest | None:
        """The manifest of a model; None if missing or invalid."""
        try:
            manifest = Manifest.model_validate_json((self.folder(model) / MANIFEST).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            return None
        return manifest if manifest.model == model.name else None

    def state(self, model: KnownModel) -> ModelState:
        """The state of a model by the sizes of its files; `verify` checks their hashes."""
        manifest = self.manifest(model)
        if manifest is None:
            return self._unpulled_state(model)
        for file in model.files:
            if problem := self._file_problem(model, file, manifest):
                return ModelState("damaged", problem)
        if model.missing_package is not None:
            return ModelState("missing package", model.missing_package)
        return ModelState("ready")

    def verify(self, model: KnownModel) -> list[str]:
        """The problems of a model's files by their hashes, one line each. Raises `OSError`."""
        manifest = self.manifest(model)
        if manifest is None:
            return ["is not pulled"]
        return [
            problem for file in model.files if (problem := self._file_problem(model, file, manifest, check_hash=True))
        ]

    def intact_record(self, model: KnownModel, file: KnownFile) -> FileRecord | None:
        """The record of an installed file with the right hash; None if it must be downloaded."""
        manifest = self.manifest(model)
        if manifest is None or self._file_problem(model, file, manifest, check_hash=True):
            return None
        return manifest.files[file.name]

    def install(self, model: KnownModel, files: Mapping[str, tuple[Path, FileRecord]]) -> None:
        """Move verified files, by name, into the model's folder and write the manifest. They are on the same disk. A
        process that has an old file open keeps it. Raises `OSError`."""
        folder = self.folder(model)
        folder.mkdir(parents=True, exist_ok=True)
        manifest = self.manifest(model)
        records = {**(manifest.files if manifest else {}), **{name: record for name, (_, record) in files.items()}}
        for name, (path, _) in files.items():
            path.replace(folder / name)
        fsync_directory(folder)
        names = {file.name for file in model.files}
        record = Manifest(model=model.name, files={name: each for name, each in records.items() if name in names})
        write_atomically(folder / MANIFEST, record.model_dump_json(indent=1).encode())
        fsync_directory(self.directory)
        shutil.rmtree(self.directory / PARTS / model.name, ignore_errors=True)

    @asynccontextmanager
    async def lock(self, name: str, on_wait: Callable[[], None]) -> AsyncIterator[None]:
        """Lock a model's files against other processes for the block; `on_wait` is called if another one holds the
        lock. The lock ends with the process. Raises `OSError`."""
        handle = await asyncio.to_thread(self._open_lock, name)
        try:
            if not _try_lock(handle):
                on_wait()
                while not _try_lock(handle):  # noqa: ASYNC110 - another process sends no event
                    await asyncio.sleep(_LOCK_POLL_S)
            yield
        finally:
            os.close(handle)

    def _open_lock(self, name: str) -> int:
        folder = self.directory / _LOCKS
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(PermissionError):  # read permission suffices to lock
            os.fchmod(handle, 0o600)
        return handle

    def _unpulled_state(self, model: KnownModel) -> ModelState:
        if self.folder(model).is_dir() and any(self.folder(model).iterdir()):
            return ModelState("damaged", f"{MANIFEST} is missing")
        received = sum(size for file in model.files if (size := _size(self.part(model, file))) is not None)
        if not received:
            return ModelState("not pulled")
        return ModelState(
            "not pulled", f"{received * 100 // model.size} % is here" if model.size else f"{received} bytes are here"
        )

    def _file_problem(
        self, model: KnownModel, file: KnownFile, manifest: Manifest, *, check_hash: bool = False
    ) -> str | None:
        """The problem of a file, None if it is intact."""
        record = manifest.files.get(file.name)
        path = self.folder(model) / file.name
        size = _size(path)
        if size is None or record is None:
            return f"{file.name} is missing"
        if file.sha256 not in (None, record.sha256) or file.size not in (None, record.size):
            return f"{file.name} is of another version than the one that is known"
        if size != record.size:
            return f"{file.name} has {size} bytes instead of {record.size}"
        if check_hash and sha256_of(path).hexdigest() != record.sha256:
            return f"{file.name} has changed since it came"
        return None


@contextmanager
def disk_errors_as_model_file_errors(directory: Path) -> Iterator[None]:
    """Turn an `OSError` into a `ModelFileError` with a remedy."""
    try:
        yield
    except OSError as error:
        where = error.filename or directory
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelFileError(
                f"there is no room left in {directory}: free some and try again, it goes on from there"
            ) from error
        raise ModelFileError(
            f"{where}: {error.strerror or error}: see what this user may do there, or set another [models] dir"
        ) from error


def sha256_of(path: Path) -> hashlib._Hash:
    """The SHA-256 hash object of a file's content. Raises `OSError`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: through a temporary file, synced and renamed. Raises `OSError`."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    fsync_directory(path.parent)


def fsync_directory(folder: Path) -> None:
    """Sync a folder's entries to disk. Raises `OSError`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
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
