"""Models from a folder or an archive: what is whole and right is taken, what is hostile is not."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from config.errors import ModelFileError
from models.model_files import import_bundle
from models.model_files.import_bundle import ENTRIES_MAX, HEADER_MAX, import_models
from models.model_files.known_models import KnownModel
from models.model_files.store import ModelStore
from tests.models.model_files.tiny_model_files import FILES, contents, model_of, store_of
from tests.trunkline.small_disk import tiny_disk

MODEL = model_of(FILES)
OTHER = model_of({"model.bin": b"other" * 50, "tokens.txt": FILES["tokens.txt"]}, name="other")
UNKNOWN = model_of(FILES, name="unknown", known=False)
Change = Callable[[tarfile.TarFile], None]


def brought(store: ModelStore, source: Path, *wanted: KnownModel, keep_free: int = 0) -> list[str]:
    """The names of the models that are taken."""
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


def archive_of(path: Path, change: Change = lambda _: None, files: dict[str, bytes] = FILES, mode: str = "w") -> Path:
    """A tar file with the files of a model, after what `change` puts before them."""
    with tarfile.open(path, mode) as archive:
        change(archive)
        for name, content in files.items():
            add(archive, f"small-2026/{name}", content)
    return path


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return store_of(tmp_path / "models", MODEL, OTHER)


def test_a_folder_brings_every_model_that_is_whole_in_it(store: ModelStore, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "usb", {f"a/b/{name}": content for name, content in FILES.items()} | {"x": b"y"})
    assert brought(store, source) == ["small"]
    assert store.state(MODEL).name == "ready" and store.verify(MODEL) == []
    assert store.state(OTHER).name == "not pulled"
    assert {name: contents(store.folder(MODEL))[name] for name in FILES} == FILES
    assert not (store.directory / ".import").exists()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_an_archive_brings_a_model(store: ModelStore, tmp_path: Path, mode: str) -> None:
    assert brought(store, archive_of(tmp_path / "model", mode=mode)) == ["small"]
    assert store.verify(MODEL) == []


def test_what_another_machine_has_pulled_can_be_carried_over(store: ModelStore, tmp_path: Path) -> None:
    there = store_of(tmp_path / "there", MODEL)
    brought(there, folder_of(tmp_path / "source", FILES))
    with tarfile.open(tmp_path / "models.tar.gz", "w:gz") as archive:
        archive.add(there.directory, "models")
    assert brought(store, tmp_path / "models.tar.gz") == ["small"]
    assert store.manifest(MODEL) == there.manifest(MODEL)


def test_a_single_file_brings_a_model_of_one_file(tmp_path: Path) -> None:
    model = model_of({"small.gguf": b"gguf" * 100})
    store = store_of(tmp_path / "models", model)
    source = folder_of(tmp_path / "downloads", {"small.gguf": b"gguf" * 100})
    assert brought(store, source / "small.gguf") == ["small"]
    assert store.state(model).name == "ready"


def test_models_may_have_a_file_in_common(store: ModelStore, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "usb", {"1/model.bin": b"other" * 50} | {f"2/{n}": c for n, c in FILES.items()})
    assert brought(store, source) == ["small", "other"]
    assert store.verify(MODEL) == store.verify(OTHER) == []
    (store.folder(MODEL) / "tokens.txt").write_bytes(b"changed")
    assert store.verify(OTHER) == []


def test_the_right_one_of_files_with_the_same_name_is_taken(store: ModelStore, tmp_path: Path) -> None:
    wrong = {"0/tokens.txt": b"tokenz" * 100, "9/tokens.txt": b"short", "9/encoder.onnx": b"encodes" * 1000}
    source = folder_of(tmp_path / "usb", wrong | {f"5/{name}": content for name, content in FILES.items()})
    assert brought(store, source) == ["small"] and store.verify(MODEL) == []


def test_files_that_nobody_knows_are_taken_for_the_model_that_is_named(tmp_path: Path) -> None:
    store = store_of(tmp_path / "models", UNKNOWN, MODEL)
    source = folder_of(tmp_path / "usb", FILES)
    assert brought(store, source) == ["small"]
    assert brought(store, source, UNKNOWN) == ["unknown"]
    manifest = store.manifest(UNKNOWN)
    assert manifest is not None and {record.origin for record in manifest.files.values()} == {"first copy"}


def test_what_is_missing_or_wrong_is_told_for_the_model_that_is_named(store: ModelStore, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "usb", {"encoder.onnx": FILES["encoder.onnx"]})
    with pytest.raises(ModelFileError, match=r"usb holds no tokens.txt of 600 bytes, which small needs: add it"):
        brought(store, source, MODEL)
    folder_of(source, {"tokens.txt": b"tokenz" * 100})
    with pytest.raises(ModelFileError, match=r"tokens.txt is not the file that small means \(SHA-256 [0-9a-f]{64}\)"):
        brought(store, source, MODEL)
    with pytest.raises(ModelFileError, match="holds no whole model that is known: name the one"):
        brought(store, source)
    assert store.state(MODEL).name == "not pulled" and not (store.directory / ".import").exists()


def test_a_failed_import_changes_nothing(store: ModelStore, tmp_path: Path) -> None:
    brought(store, folder_of(tmp_path / "usb", FILES))
    before = contents(store.folder(MODEL))
    with pytest.raises(ModelFileError):
        brought(store, archive_of(tmp_path / "bad.tar", files={**FILES, "tokens.txt": b"tokenz" * 100}), MODEL)
    assert contents(store.folder(MODEL)) == before


HOSTILE: dict[str, tuple[Change, str]] = {
    "climbs": (lambda tar: add(tar, "../../tokens.txt", b"x"), "which leads out of it: nothing was taken"),
    "climbs later": (lambda tar: add(tar, "a/../../x"), "which leads out of it"),
    "from the root": (lambda tar: add(tar, "/etc/tokens.txt", b"x"), "which leads out of it"),
    "symlink": (lambda tar: add(tar, "tokens.txt", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "no plain file"),
    "hard link": (lambda tar: add(tar, "tokens.txt", type=tarfile.LNKTYPE, linkname="/etc/passwd"), "no plain file"),
    "device": (lambda tar: add(tar, "tokens.txt", type=tarfile.CHRTYPE, devmajor=1, devminor=5), "no plain file"),
    "pipe": (lambda tar: add(tar, "tokens.txt", type=tarfile.FIFOTYPE), "no plain file"),
    "long name": (lambda tar: add(tar, "a/" * HEADER_MAX + "x"), "holds a name of .* bytes"),
    "long remark": (lambda tar: add(tar, "x", pax_headers={"comment": "y" * HEADER_MAX}), "holds a name of .* bytes"),
    "size below nothing": (lambda tar: add(tar, "x", pax_headers={"size": "-10000"}), "no plain file|no tar file"),
    "too much": (lambda tar: add(tar, "x", pax_headers={"size": str(1 << 50)}), "holds more than 128 GiB"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused_whole(store: ModelStore, tmp_path: Path, kind: str) -> None:
    change, words = HOSTILE[kind]
    with pytest.raises(ModelFileError, match=words):
        brought(store, archive_of(tmp_path / "hostile.tar", change))
    assert not store.folder(MODEL).exists() and not (store.directory / ".import").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"hostile.tar", "models"}


def name_of_a_name(times: int) -> bytes:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 5
    return (header.tobuf(tarfile.GNU_FORMAT) + b"name\0".ljust(512, b"\0")) * times


def remark(**fields: str) -> bytes:
    """What stands before a file in an archive of the newer form."""
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
def test_an_archive_that_its_reader_does_not_understand_is_told(
    store: ModelStore, tmp_path: Path, content: bytes
) -> None:
    path = archive_of(tmp_path / "hostile.tar")
    path.write_bytes(content + path.read_bytes())
    with pytest.raises(ModelFileError, match="is no tar file, or a damaged one"):
        brought(store, path)
    assert not (store.directory / ".import").exists()


def test_a_size_below_nothing_in_an_old_header_is_refused(store: ModelStore, tmp_path: Path) -> None:
    """Base 256, as GNU tar writes sizes from 8 GiB on."""
    path = archive_of(tmp_path / "hostile.tar")
    raw = bytearray(path.read_bytes())
    raw[124:136] = (-512).to_bytes(12, "big", signed=True)
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    path.write_bytes(raw)
    with pytest.raises(ModelFileError, match="a file of less than nothing"):
        brought(store, path)


def test_more_entries_than_models_have_are_refused(
    store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ENTRIES_MAX == 10_000
    monkeypatch.setattr(import_bundle, "ENTRIES_MAX", 10)
    many = {f"file{number}": b"" for number in range(11)}
    for source in (folder_of(tmp_path / "folder", many), archive_of(tmp_path / "many.tar", files=many)):
        with pytest.raises(ModelFileError, match="holds more than 10 files"):
            brought(store, source)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_cut_archive_is_told(store: ModelStore, tmp_path: Path, mode: str) -> None:
    path = archive_of(tmp_path / "cut", files={"encoder.onnx": os.urandom(7000)}, mode=mode)
    os.truncate(path, path.stat().st_size // 2 if mode != "w" else 4000)
    with pytest.raises(ModelFileError, match=r"is no tar file, or a damaged one|holds no whole model|ends \d+ bytes"):
        brought(store, path)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04" + bytes(600), bytes(2000)])
def test_what_is_no_archive_is_told(store: ModelStore, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.zip").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"is no tar file|holds no whole model"):
        brought(store, tmp_path / "model.zip")


def test_a_language_model_that_the_list_does_not_have_is_told_where_it_goes(store: ModelStore, tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(b"GGUF" + bytes(600))
    with pytest.raises(ModelFileError, match=r"own.gguf is not called like .* your own into \[models\] dir as it is"):
        brought(store, tmp_path / "own.gguf")


def test_a_source_that_is_not_there_or_a_link_is_told(store: ModelStore, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="nowhere is no file and no folder"):
        brought(store, tmp_path / "nowhere")
    source = folder_of(tmp_path / "usb", {"encoder.onnx": FILES["encoder.onnx"]})
    (source / "tokens.txt").symlink_to("/etc/passwd")
    with pytest.raises(ModelFileError, match=r"usb/tokens.txt is a link: copy the files themselves \(cp -rL\)"):
        brought(store, source)


def test_an_import_that_was_killed_leaves_nothing(store: ModelStore, tmp_path: Path) -> None:
    folder_of(store.directory / ".import", {"0": b"left"})
    assert brought(store, folder_of(tmp_path / "usb", FILES)) == ["small"]
    assert not (store.directory / ".import").exists()


def test_a_disk_without_room_is_told(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk", "1m"):
        model = model_of({"large.onnx": bytes(2_000_000)})
        source = folder_of(tmp_path / "usb", {"large.onnx": bytes(2_000_000)})
        with pytest.raises(ModelFileError, match=r"MiB are needed: free some"):
            brought(store_of(tmp_path / "disk", model), source)
        with pytest.raises(ModelFileError, match=r"there is no room left in .*: free some and run the command again"):
            brought(store_of(tmp_path / "disk", model), source, keep_free=-2_000_000)


def test_a_file_that_becomes_shorter_while_it_is_read_is_told(tmp_path: Path) -> None:
    """As on a stick that is pulled out."""
    with pytest.raises(ModelFileError, match=r"model.bin ends 7 bytes too early: copy the source again"):
        import_bundle._copied(io.BytesIO(b"abc"), "model.bin", 10, tmp_path / "copy", 0)


async def test_two_imports_wait_for_each_other(store: ModelStore, tmp_path: Path) -> None:
    source = await asyncio.to_thread(folder_of, tmp_path / "usb", FILES)
    waits = asyncio.Event()
    async with store.lock(".import", pytest.fail):
        second = asyncio.create_task(import_models(store, source, store.known, waits.set, keep_free=0))
        await waits.wait()
        assert not second.done()
    assert [model.name for model in await second] == ["small"]
