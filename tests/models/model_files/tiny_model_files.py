"""Model files of a few bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.model_files.known_models import KnownModel
from models.model_files.store import ModelStore
from tests.models.model_files.file_server import sha256

FILES = {"encoder.onnx": b"encoder" * 1000, "tokens.txt": b"tokens" * 100}


def model_of(
    files: dict[str, bytes],
    base: str = "https://models.example/",
    *,
    name: str = "small",
    known: bool = True,
    **more: Any,
) -> KnownModel:
    """A model of these files; `known`: with sizes and hashes."""
    entries = [
        {"role": file.split(".")[0], "name": file}
        | ({"size": len(content), "sha256": sha256(content)} if known else {})
        for file, content in files.items()
    ]
    entry = {"name": name, "kind": "stt", "engine": "test", "licence": "MIT", "languages": ["en"], "files": entries}
    return KnownModel.model_validate({**entry, "base": base, **more})


def store_of(directory: Path, *models: KnownModel) -> ModelStore:
    return ModelStore(directory, models)


def contents(folder: Path) -> dict[str, bytes]:
    """The contents of a folder by name, with hidden files."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} if folder.is_dir() else {}
