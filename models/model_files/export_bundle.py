"""Writes a bundle: a tar file of installed models with their checksums and licences, for machines without a network."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from config.errors import ModelFileError
from models.model_files.bundle_contents import CONTENTS
from models.model_files.download import MIN_FREE_BYTES, require_free_space
from models.model_files.import_bundle import OnCopyProgress
from models.model_files.known_models import KnownModel
from models.model_files.store import FileRecord, ModelStore, disk_errors_as_model_file_errors


def write_bundle(
    store: ModelStore,
    models: Sequence[KnownModel],
    path: Path,
    on_progress: OnCopyProgress = lambda _name, _done, _total: None,
    *,
    keep_free: int = MIN_FREE_BYTES,
) -> list[dict[str, Any]]:
    """Writes the tar file `path` and returns its contents. Each file must have the SHA-256 with which it was installed.
    Raises `ModelFileError`; no file is left then. Takes as long as reading and writing the models."""
    if path.exists():
        raise ModelFileError(f"{path} exists: choose another name, or remove it")
    records = {model.name: _records(store, model) for model in models}
    contents = [_describe(model, records[model.name]) for model in models]
    partial = path.with_name(f".{path.name}.new")
    with disk_errors_as_model_file_errors(path.parent):
        total = sum(record.size for files in records.values() for record in files.values())
        require_free_space(path.parent, total, keep_free)
        file = partial.open("xb")  # not one that another process writes
        try:
            with file, tarfile.open(fileobj=file, mode="w") as archive:
                _add_contents(archive, contents)
                for model in models:
                    for name, record in records[model.name].items():
                        _add_file(archive, store.folder(model) / name, model.name, record, on_progress)
            partial.rename(path)
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()
    return contents


def _records(store: ModelStore, model: KnownModel) -> dict[str, FileRecord]:
    state = store.state(model)
    manifest = store.manifest(model)
    if manifest is None or state.name not in ("ready", "missing package"):
        raise ModelFileError(f"{model.name} is not installed ({state}): run `trunkline models pull {model.name}`")
    return {file.name: manifest.files[file.name] for file in model.files}


def _describe(model: KnownModel, records: dict[str, FileRecord]) -> dict[str, Any]:
    files = [{"name": name, "size": record.size, "sha256": record.sha256} for name, record in records.items()]
    return {
        "name": model.name,
        "kind": model.kind,
        "licence": model.licence,
        "languages": list(model.languages),
        "source": model.base,
        "files": files,
    }


def _add_contents(archive: tarfile.TarFile, contents: Sequence[dict[str, Any]]) -> None:
    text = json.dumps({"models": contents}, indent=1, ensure_ascii=False).encode()
    archive.addfile(_entry(CONTENTS, len(text)), io.BytesIO(text))


def _add_file(
    archive: tarfile.TarFile, path: Path, model: str, record: FileRecord, on_progress: OnCopyProgress
) -> None:
    with path.open("rb") as file:
        reader = _HashingReader(file, path.name, record.size, on_progress)
        archive.addfile(_entry(f"{model}/{path.name}", record.size), cast(IO[bytes], reader))
    if reader.digest.hexdigest() != record.sha256:
        raise ModelFileError(f"{path} has changed since it came: run `trunkline models pull {model}`")


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry


class _HashingReader:
    """A file that is hashed as it is read."""

    def __init__(self, file: IO[bytes], name: str, size: int, on_progress: OnCopyProgress) -> None:
        self.digest = hashlib.sha256()
        self._file, self._name, self._size, self._on_progress = file, name, size, on_progress

    def read(self, count: int) -> bytes:
        block = self._file.read(count)
        self.digest.update(block)
        self._on_progress(self._name, self._file.tell(), self._size)
        return block
