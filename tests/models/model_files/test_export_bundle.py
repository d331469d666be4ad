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
from models.model_files.known_models import KnownModel
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
    with pytest.raises(ModelFileError, match=r"small/encoder\.onnx is damaged: copy the bundle again"):
        asyncio.run(import_models(other, path, other.known, keep_free=0))
    assert other.state(MODEL).name == "not pulled"


FIRST = model_of({"model.onnx": b"first" * 50, "tokens.txt": b"a"}, name="first", known=False)
SECOND = model_of({"model.onnx": b"second" * 50, "tokens.txt": b"b"}, name="second", known=False)
UNLISTED = {
    FIRST: {"model.onnx": b"first" * 50, "tokens.txt": b"a"},
    SECOND: {"model.onnx": b"second" * 50, "tokens.txt": b"b"},
}
"""Models of the operator's own list without sums, whose files have the same names."""


def bundle_of_unlisted_sums(folder: Path, *more: KnownModel) -> Path:
    """A bundle of both, and of `more`, which are installed."""
    store = installed(folder)
    for model, files in UNLISTED.items():
        install(store, folder / model.name, model, files)
    path = folder / "out.tar"
    write_bundle(store, [FIRST, SECOND, *more], path, keep_free=0)
    return path


def install(store: ModelStore, source: Path, model: KnownModel, files: dict[str, bytes]) -> None:
    source.mkdir()
    for name, content in files.items():
        (source / name).write_bytes(content)
    asyncio.run(import_models(store, source, [model], keep_free=0))


def files_of(store: ModelStore, model: KnownModel) -> dict[str, bytes]:
    found = contents(store.folder(model))
    return {file.name: found[file.name] for file in model.files if file.name in found}


def import_from(store: ModelStore, path: Path, *models: KnownModel) -> tuple[list[str], dict[str, str]]:
    """The names of the imported models, and the causes why others were left out."""
    left_out: dict[str, str] = {}
    found = asyncio.run(
        import_models(store, path, models or store.known, on_left_out=left_out.__setitem__, keep_free=0)
    )
    return [model.name for model in found], left_out


def test_models_without_listed_sums_are_imported_with_their_own_files(tmp_path: Path) -> None:
    path = bundle_of_unlisted_sums(tmp_path, MODEL)
    other = store_of(tmp_path / "other", SECOND, MODEL, FIRST)
    assert import_from(other, path) == (["second", "small", "first"], {})
    assert {model: files_of(other, model) for model in UNLISTED} == UNLISTED


@pytest.mark.parametrize("model", UNLISTED, ids=lambda model: model.name)
def test_a_named_model_of_a_bundle_gets_its_own_files(tmp_path: Path, model: KnownModel) -> None:
    path = bundle_of_unlisted_sums(tmp_path)
    other = store_of(tmp_path / "other", FIRST, SECOND)
    assert import_from(other, path, model) == ([model.name], {})
    assert files_of(other, model) == UNLISTED[model]


def test_an_unpacked_bundle_is_imported_too(tmp_path: Path) -> None:
    with tarfile.open(bundle_of_unlisted_sums(tmp_path)) as archive:
        archive.extractall(tmp_path / "usb", filter="data")
    other = store_of(tmp_path / "other", FIRST, SECOND)
    assert import_from(other, tmp_path / "usb") == (["first", "second"], {})
    assert {model: files_of(other, model) for model in UNLISTED} == UNLISTED


def test_a_model_that_the_other_machine_does_not_know_is_named(tmp_path: Path) -> None:
    path = bundle_of_unlisted_sums(tmp_path, MODEL)
    newer = model_of({"model.onnx": b"newer" * 50, "tokens.txt": b"b"}, name="second")
    names, left_out = import_from(store_of(tmp_path / "other", MODEL, newer), path)
    assert names == ["small"]
    assert left_out.keys() == {"first", "second"}
    assert left_out["first"].startswith("is not in the lists of this machine: copy known_models.json")
    assert left_out["second"] == "model.onnx is of another version than the one that is known here"
    with pytest.raises(
        ModelFileError, match=r"no complete known model: first is not in the lists .* second model\.onnx"
    ):
        import_from(store_of(tmp_path / "third", newer, OTHER), path)


def test_a_file_of_a_model_without_listed_sums_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    path = bundle_of_unlisted_sums(tmp_path, MODEL)
    path.write_bytes(path.read_bytes().replace(b"second" * 3, b"Second" * 3, 1))
    other = store_of(tmp_path / "other", FIRST, SECOND, MODEL)
    with pytest.raises(ModelFileError, match=r"second/model\.onnx is damaged: copy the bundle again"):
        import_from(other, path)
    assert {other.state(model).name for model in other.known} == {"not pulled"}


def test_installed_files_that_no_list_confirms_are_replaced_for_a_named_model_only(tmp_path: Path) -> None:
    path = bundle_of_unlisted_sums(tmp_path)
    other = store_of(tmp_path / "other", FIRST, SECOND)
    mine = {"model.onnx": b"mine", "tokens.txt": b"a"}
    install(other, tmp_path / "mine", FIRST, mine)
    names, left_out = import_from(other, path)
    assert (names, files_of(other, FIRST)) == (["second"], mine)
    assert left_out == {"first": "is installed with other files, which no list confirms: name it to replace them"}
    assert import_from(other, path, FIRST) == (["first"], {})
    assert files_of(other, FIRST) == UNLISTED[FIRST]


def test_contents_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "usb").mkdir()
    (tmp_path / "usb/BUNDLE.json").write_text("[1]")
    with pytest.raises(ModelFileError, match=r"BUNDLE\.json is not one of `trunkline models bundle`"):
        import_from(store_of(tmp_path / "other", FIRST, SECOND), tmp_path / "usb")
