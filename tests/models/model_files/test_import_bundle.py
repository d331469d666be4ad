"""Imports from a folder or an archive: complete and verified models only, hostile archives are rejected."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from config.errors import ModelFileError
from models.model_files import import_bundle
from models.model_files.import_bundle import MAX_ENTRIES, MAX_HEADER_BYTES, import_models
from models.model_files.known_models import KnownModel
from models.model_files.store import ModelStore
from tests.models.model_files.tiny_model_files import FILES, contents, model_of, store_of
from tests.trunkline.small_disk import tiny_disk

MODEL = model_of(FILES)
OTHER = model_of({"model.bin": b"other" * 50, "tokens.txt": FILES["tokens.txt"]}, name="other")
UNKNOWN = model_of(FILES, name="unknown", known=False)
Change = Callable[[tarfile.TarFile], None]
Mode = Literal["w", "w:gz", "w:bz2", "w:xz"]


def imported_names(store: ModelStore, source: Path, *wanted: KnownModel, keep_free: int = 0) -> list[str]:
    """The names of the imported models."""
    models = asyncio.run(import_models(store, source, wanted or store.known, on_wait=pytest.fail, keep_free=keep_free))
    return [model.name for model in models]


def folder_of(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def add(archive: tarfile.TarFile, name: str, content: bytes = b"", **more: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in more.items():
        setattr(member, key, value)
    archive.addfile(member, io.BytesIO(content))


def archive_of(path: Path, change: Change = lambda _: None, files: dict[str, bytes] = FILES, mode: Mode = "w") -> Path:
    """A tar file with the files of a model, after the entries that `change` adds."""
    with tarfile.open(path, mode) as archive:
        change(archive)
        for name, content in files.items():
            add(archive, f"small-2026/{name}", content)
    return path


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return store_of(tmp_path / "models", MODEL, OTHER)


def test_every_complete_model_in_a_folder_is_imported(store: ModelStore, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "usb", {f"a/b/{name}": content for name, content in FILES.items()} | {"x": b"y"})
    assert imported_names(store, source) == ["small"]
    assert store.state(MODEL).name == "ready" and store.verify(MODEL) == []
    assert store.state(OTHER).name == "not pulled"
    assert {name: contents(store.folder(MODEL))[name] for name in FILES} == FILES
    assert not (store.directory / ".import").exists()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_model_in_an_archive_is_imported(store: ModelStore, tmp_path: Path, mode: Mode) -> None:
    assert imported_names(store, archive_of(tmp_path / "model", mode=mode)) == ["small"]
    assert store.verify(MODEL) == []


def test_the_models_folder_of_another_machine_can_be_imported(store: ModelStore, tmp_path: Path) -> None:
    there = store_of(tmp_path / "there", MODEL)
    imported_names(there, folder_of(tmp_path / "source", FILES))
    with tarfile.open(tmp_path / "models.tar.gz", "w:gz") as archive:
        archive.add(there.directory, "models")
    assert imported_names(store, tmp_path / "models.tar.gz") == ["small"]
    assert store.manifest(MODEL) == there.manifest(MODEL)


def test_a_single_file_model_is_imported(tmp_path: Path) -> None:
    model = model_of({"small.gguf": b"gguf" * 100})
    store = store_of(tmp_path / "models", model)
    source = folder_of(tmp_path / "downloads", {"small.gguf": b"gguf" * 100})
    assert imported_names(store, source / "small.gguf") == ["small"]
    assert store.state(model).name == "ready"


def test_models_may_share_a_file(store: ModelStore, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "usb", {"1/model.bin": b"other" * 50} | {f"2/{n}": c for n, c in FILES.items()})
    assert imported_names(store, source) == ["small", "other"]
    assert store.verify(MODEL) == store.verify(OTHER) == []
    (store.folder(MODEL) / "tokens.txt").write_bytes(b"changed")
    assert store.verify(OTHER) == []


def test_of_files_with_one_name_that_with_the_right_hash_is_imported(store: ModelStore, tmp_path: Path) -> None:
    wrong = {"0/tokens.txt": b"tokenz" * 100, "9/tokens.txt": b"short", "9/encoder.onnx": b"encodes" * 1000}
    source = folder_of(tmp_path / "usb", wrong | {f"5/{name}": content for name, content in FILES.items()})
    assert imported_names(store, source) == ["small"] and store.verify(MODEL) == []


def test_files_without_a_known_hash_are_imported_for_a_named_model(tmp_path: Path) -> None:
    store = store_of(tmp_path / "models", UNKNOWN, MODEL)
    source = folder_of(tmp_path / "usb", FILES)
    assert imported_names(store, source) == ["small"]
    assert imported_names(store, source, UNKNOWN) == ["unknown"]
    manifest = store.manifest(UNKNOWN)
    assert manifest is not None and {record.origin for record in manifest.files.values()} == {"first copy"}


def test_of_files_with_one_name_and_no_known_hash_that_in_the_models_folder_is_imported(tmp_path: Path) -> None:
    store = store_of(tmp_path / "models", UNKNOWN)
    other = {f"aaa/{name}": b"other" for name in FILES}
    own = {f"unknown/{name}": content for name, content in FILES.items()}
    assert imported_names(store, folder_of(tmp_path / "both", other | own), UNKNOWN) == ["unknown"]
    assert {name: contents(store.folder(UNKNOWN))[name] for name in FILES} == FILES
    unclear = folder_of(tmp_path / "unclear", other | {f"bbb/{name}": content for name, content in FILES.items()})
    with pytest.raises(
        ModelFileError, match=r"different files that are called encoder\.onnx: put those of unknown into"
    ):
        imported_names(store, unclear, UNKNOWN)


def test_missing_and_wrong_files_of_a_named_model_are_reported(store: ModelStore, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "usb", {"encoder.onnx": FILES["encoder.onnx"]})
    with pytest.raises(ModelFileError, match=r"usb holds no tokens.txt of 600 bytes, which small needs: add it"):
        imported_names(store, source, MODEL)
    folder_of(source, {"tokens.txt": b"tokenz" * 100})
    with pytest.raises(ModelFileError, match=r"tokens.txt is not the file that small means \(SHA-256 [0-9a-f]{64}\)"):
        imported_names(store, source, MODEL)
    with pytest.raises(ModelFileError, match="holds no complete known model: name the model"):
        imported_names(store, source)
    assert store.state(MODEL).name == "not pulled" and not (store.directory / ".import").exists()


def test_a_failed_import_changes_nothing(store: ModelStore, tmp_path: Path) -> None:
    imported_names(store, folder_of(tmp_path / "usb", FILES))
    before = contents(store.folder(MODEL))
    with pytest.raises(ModelFileError):
        imported_names(store, archive_of(tmp_path / "bad.tar", files={**FILES, "tokens.txt": b"tokenz" * 100}), MODEL)
    assert contents(store.folder(MODEL)) == before


HOSTILE: dict[str, tuple[Change, str]] = {
    "climbs": (lambda tar: add(tar, "../../tokens.txt", b"x"), "which leads out of it: nothing was imported"),
    "climbs later": (lambda tar: add(tar, "a/../../x"), "which leads out of it"),
    "from the root": (lambda tar: add(tar, "/etc/tokens.txt", b"x"), "which leads out of it"),
    "symlink": (lambda tar: add(tar, "tokens.txt", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "no plain file"),
    "hard link": (lambda tar: add(tar, "tokens.txt", type=tarfile.LNKTYPE, linkname="/etc/passwd"), "no plain file"),
    "device": (lambda tar: add(tar, "tokens.txt", type=tarfile.CHRTYPE, devmajor=1, devminor=5), "no plain file"),
    "pipe": (lambda tar: add(tar, "tokens.txt", type=tarfile.FIFOTYPE), "no plain file"),
    "long name": (lambda tar: add(tar, "a/" * MAX_HEADER_BYTES + "x"), "holds a name of .* bytes"),
    "long remark": (
        lambda tar: add(tar, "x", pax_headers={"comment": "y" * MAX_HEADER_BYTES}),
        "holds a name of .* bytes",
    ),
    "size below nothing": (lambda tar: add(tar, "x", pax_headers={"size": "-10000"}), "no plain file|no tar file"),
    "too much": (lambda tar: add(tar, "x", pax_headers={"size": str(1 << 50)}), "holds more than 128 GiB"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_rejected(store: ModelStore, tmp_path: Path, kind: str) -> None:
    change, words = HOSTILE[kind]
    with pytest.raises(ModelFileError, match=words):
        imported_names(store, archive_of(tmp_path / "hostile.tar", change))
    assert not store.folder(MODEL).exists() and not (store.directory / ".import").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"hostile.tar", "models"}


def name_of_a_name(times: int) -> bytes:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 5
    return (header.tobuf(tarfile.GNU_FORMAT) + b"name\0".ljust(512, b"\0")) * times


def remark(**fields: str) -> bytes:
    """A pax header before a file."""
    header = tarfile.TarInfo("y")
    header.pax_headers = {name.replace("_", "."): value for name, value in fields.items()}
    header.size = 512
    return header.tobuf(tarfile.PAX_FORMAT) + b"x" * 512


@pytest.mark.parametrize(
    "content",
    [
        name_of_a_name(3000),
        remark(GNU_sparse_map="a,b", GNU_sparse_size="10"),
        remark(GNU_sparse_major="1", GNU_sparse_minor="0", GNU_sparse_realsize="10"),
    ],
)
def test_an_invalid_archive_raises(store: ModelStore, tmp_path: Path, content: bytes) -> None:
    path = archive_of(tmp_path / "hostile.tar")
    path.write_bytes(content + path.read_bytes())
    with pytest.raises(ModelFileError, match="is no tar file, or a damaged one"):
        imported_names(store, path)
    assert not (store.directory / ".import").exists()


def test_a_negative_size_in_an_old_header_raises(store: ModelStore, tmp_path: Path) -> None:
    """Base 256, as GNU tar writes sizes from 8 GiB on."""
    path = archive_of(tmp_path / "hostile.tar")
    raw = bytearray(path.read_bytes())
    raw[124:136] = (-512).to_bytes(12, "big", signed=True)
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    path.write_bytes(raw)
    with pytest.raises(ModelFileError, match="a file of negative size"):
        imported_names(store, path)


def test_too_many_entries_raise(store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_ENTRIES == 10_000
    monkeypatch.setattr(import_bundle, "MAX_ENTRIES", 10)
    many = {f"file{number}": b"" for number in range(11)}
    for source in (folder_of(tmp_path / "folder", many), archive_of(tmp_path / "many.tar", files=many)):
        with pytest.raises(ModelFileError, match="holds more than 10 files"):
            imported_names(store, source)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_truncated_archive_raises(store: ModelStore, tmp_path: Path, mode: Mode) -> None:
    path = archive_of(tmp_path / "cut", files={"encoder.onnx": os.urandom(7000)}, mode=mode)
    os.truncate(path, path.stat().st_size // 2 if mode != "w" else 4000)
    with pytest.raises(
        ModelFileError, match=r"is no tar file, or a damaged one|holds no complete known model|ends \d+ bytes"
    ):
        imported_names(store, path)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04" + bytes(600), bytes(2000)])
def test_a_file_that_is_no_archive_raises(store: ModelStore, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.zip").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"is no tar file|holds no complete known model"):
        imported_names(store, tmp_path / "model.zip")


def test_an_unknown_gguf_file_raises_with_the_remedy(store: ModelStore, tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(b"GGUF" + bytes(600))
    with pytest.raises(ModelFileError, match=r"own.gguf is not called like .* your own into \[models\] dir as it is"):
        imported_names(store, tmp_path / "own.gguf")


def test_a_missing_source_and_a_link_raise(store: ModelStore, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="nowhere is no file and no folder"):
        imported_names(store, tmp_path / "nowhere")
    source = folder_of(tmp_path / "usb", {"encoder.onnx": FILES["encoder.onnx"]})
    (source / "tokens.txt").symlink_to("/etc/passwd")
    with pytest.raises(ModelFileError, match=r"usb/tokens.txt is a link: copy the files themselves \(cp -rL\)"):
        imported_names(store, source)


def test_an_import_removes_the_staging_of_a_killed_one(store: ModelStore, tmp_path: Path) -> None:
    folder_of(store.directory / ".import", {"0": b"left"})
    assert imported_names(store, folder_of(tmp_path / "usb", FILES)) == ["small"]
    assert not (store.directory / ".import").exists()


def test_an_import_without_disk_space_raises(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk", "1m"):
        model = model_of({"large.onnx": bytes(2_000_000)})
        source = folder_of(tmp_path / "usb", {"large.onnx": bytes(2_000_000)})
        with pytest.raises(ModelFileError, match=r"MiB are needed: free some"):
            imported_names(store_of(tmp_path / "disk", model), source)
        with pytest.raises(ModelFileError, match=r"there is no room left in .*: free some and try again"):
            imported_names(store_of(tmp_path / "disk", model), source, keep_free=-2_000_000)


def test_a_file_that_is_truncated_during_the_import_raises(tmp_path: Path) -> None:
    """Like on an unplugged drive."""
    file = import_bundle._SourceFile("model.bin", "", 10, io.BytesIO(b"abc"))
    with pytest.raises(ModelFileError, match=r"model.bin ends 7 bytes too early: copy the source again"):
        import_bundle._copy_to_stage(file, tmp_path / "copy", 0)


async def test_two_imports_wait_for_each_other(store: ModelStore, tmp_path: Path) -> None:
    source = await asyncio.to_thread(folder_of, tmp_path / "usb", FILES)
    waits = asyncio.Event()
    async with store.lock(".import", pytest.fail):
        second = asyncio.create_task(import_models(store, source, store.known, waits.set, keep_free=0))
        await waits.wait()
        assert not second.done()
    assert [model.name for model in await second] == ["small"]
