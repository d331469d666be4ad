"""Bundles: what is packed, and that import accepts it and refuses a changed one."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path

import pytest

from config.errors import ModelFileError
from models.model_files.export_bundle import write_bundle
from models.model_files.import_bundle import import_models
from models.model_files.store import ModelStore
from tests.models.model_files.file_server import sha256
from tests.models.model_files.tiny_model_files import FILES, contents, model_of, store_of

MODEL = model_of(FILES)
OTHER = model_of({"model.bin": b"other" * 50}, name="other")


def installed(folder: Path) -> ModelStore:
    """A store with MODEL, which was imported from a folder."""
    store = store_of(folder / "models", MODEL, OTHER)
    source = folder / "source"
    source.mkdir()
    for name, content in FILES.items():
        (source / name).write_bytes(content)
    asyncio.run(import_models(store, source, [MODEL], keep_free=0))
    return store


def test_a_bundle_is_imported_on_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "out.tar"
    write_bundle(installed(tmp_path), [MODEL], path, keep_free=0)
    other = store_of(tmp_path / "other", MODEL, OTHER)
    assert asyncio.run(import_models(other, path, other.known, keep_free=0)) == [MODEL]
    assert other.verify(MODEL) == []
    assert {name: contents(other.folder(MODEL))[name] for name in FILES} == FILES


def test_it_lists_licences_and_checksums(tmp_path: Path) -> None:
    path = tmp_path / "out.tar"
    told = write_bundle(installed(tmp_path), [MODEL], path, keep_free=0)
    with tarfile.open(path) as archive:
        first = archive.extractfile("BUNDLE.json")
        assert first is not None and json.load(first) == {"models": told}
        assert archive.getnames() == ["BUNDLE.json", *(f"small/{name}" for name in FILES)]
    assert (told[0]["licence"], told[0]["languages"]) == ("MIT", ["en"])
    assert {file["name"]: file["sha256"] for file in told[0]["files"]} == {
        name: sha256(content) for name, content in FILES.items()
    }


def test_a_file_that_has_changed_since_it_came_is_not_packed(tmp_path: Path) -> None:
    store = installed(tmp_path)
    (store.folder(MODEL) / "tokens.txt").write_bytes(b"tokenz" * 100)
    with pytest.raises(ModelFileError, match=r"tokens\.txt has changed since it came"):
        write_bundle(store, [MODEL], tmp_path / "out.tar", keep_free=0)
    assert not list(tmp_path.glob("*.tar*")) + list(tmp_path.glob(".out*"))


def test_a_model_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"other is not installed \(not pulled\): run `trunkline models pull"):
        write_bundle(installed(tmp_path), [MODEL, OTHER], tmp_path / "out.tar", keep_free=0)


def test_no_file_is_overwritten_and_a_full_disk_stops_it_first(tmp_path: Path) -> None:
    store, path = installed(tmp_path), tmp_path / "out.tar"
    with pytest.raises(ModelFileError, match="MiB are needed"):
        write_bundle(store, [MODEL], path, keep_free=1 << 60)
    path.write_bytes(b"mine")
    with pytest.raises(ModelFileError, match="exists"):
        write_bundle(store, [MODEL], path, keep_free=0)
    assert path.read_bytes() == b"mine"


def test_a_bundle_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    store, others = installed(tmp_path), tmp_path / ".out.tar.new"
    others.write_bytes(b"theirs")
    with pytest.raises(ModelFileError):
        write_bundle(store, [MODEL], tmp_path / "out.tar", keep_free=0)
    assert others.read_bytes() == b"theirs"


def test_a_bundle_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.tar"
    write_bundle(installed(tmp_path), [MODEL], path, keep_free=0)
    path.write_bytes(path.read_bytes().replace(b"encoder" * 3, b"Encoder" * 3, 1))
    other = store_of(tmp_path / "other", MODEL)
    with pytest.raises(ModelFileError, match=r"encoder\.onnx is not the file that small means"):
        asyncio.run(import_models(other, path, other.known, keep_free=0))
    assert other.state(MODEL).name == "not pulled"
