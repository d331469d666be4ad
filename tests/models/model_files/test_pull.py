"""A pulled model is installed completely or not at all, and verified from then on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from config.errors import ModelFileError
from models.model_files.known_models import Kind, KnownModel
from models.model_files.pull import pull
from models.model_files.store import MANIFEST, FileRecord, ModelStore
from tests.models.model_files.file_server import FileServer, file_server, sha256
from tests.models.model_files.tiny_model_files import FILES, contents, model_of, store_of
from tests.trunkline.small_disk import tiny_disk

OTHER = {**FILES, "tokens.txt": b"others" * 100}


@pytest.fixture
async def server() -> AsyncIterator[FileServer]:
    async with file_server(b"") as server:
        server.files = {f"/{name}": content for name, content in FILES.items()}
        yield server


async def pull_model(store: ModelStore, model: KnownModel) -> dict[str, FileRecord]:
    return await pull(store, model, pauses_s=[0.0], keep_free=0)


async def model_state(store: ModelStore, model: KnownModel) -> str:
    return str(await asyncio.to_thread(store.state, model))


async def verify(store: ModelStore, model: KnownModel) -> list[str]:
    return await asyncio.to_thread(store.verify, model)


async def ready_names(store: ModelStore, kind: Kind, language: str | None = None) -> list[KnownModel]:
    return await asyncio.to_thread(store.ready, kind, language)


async def test_a_pulled_model_has_a_manifest(server: FileServer, tmp_path: Path) -> None:
    model = model_of(FILES, server.origin)
    store = store_of(tmp_path / "models", model)
    assert await model_state(store, model) == "not pulled"
    come = await pull_model(store, model)
    assert {name: record.origin for name, record in come.items()} == dict.fromkeys(FILES, "list")
    there = contents(store.folder(model))
    assert {name: there[name] for name in FILES} == FILES and set(there) == {*FILES, MANIFEST}
    assert await model_state(store, model) == "ready" and await ready_names(store, "stt", "en-US") == [model]
    assert await ready_names(store, "stt", "de") == [] == await ready_names(store, "llm")
    assert store.path(model, "encoder").read_bytes() == FILES["encoder.onnx"]
    assert not store.part(model, model.files[0]).parent.exists()


async def test_installed_files_are_not_downloaded_again(server: FileServer, tmp_path: Path) -> None:
    model = model_of(FILES, server.origin)
    store = store_of(tmp_path, model)
    await pull_model(store, model)
    server.asked.clear()
    assert await pull_model(store, model) == {} and server.asked == []


async def test_files_downloaded_before_a_failure_are_kept(server: FileServer, tmp_path: Path) -> None:
    model = model_of(FILES, server.origin)
    store = store_of(tmp_path, model)
    server.statuses = [200, 404]
    with pytest.raises(ModelFileError, match=r"tokens.txt no longer exists"):
        await pull_model(store, model)
    assert await model_state(store, model) == "not pulled: 92 % is here" and not store.folder(model).exists()
    server.asked.clear()
    await pull_model(store, model)
    assert [path for path, _, _ in server.asked] == ["/tokens.txt"]
    assert await model_state(store, model) == "ready"


async def test_only_the_damaged_file_is_downloaded_again(server: FileServer, tmp_path: Path) -> None:
    model = model_of(FILES, server.origin)
    store = store_of(tmp_path, model)
    await pull_model(store, model)
    file = store.folder(model) / "tokens.txt"
    file.write_bytes(b"tokenz" * 100)
    assert await model_state(store, model) == "ready", "of the same size: only reading it whole tells"
    assert await verify(store, model) == ["tokens.txt has changed since it came"]
    server.asked.clear()
    await pull_model(store, model)
    assert [path for path, _, _ in server.asked] == ["/tokens.txt"] and await verify(store, model) == []


@pytest.mark.parametrize("damage", ["gone", "cut", "no record", "record of another", "record is none"])
async def test_damage_is_detected_and_repaired(server: FileServer, tmp_path: Path, damage: str) -> None:
    model = model_of(FILES, server.origin)
    store = store_of(tmp_path, model)
    await pull_model(store, model)
    file, record = store.folder(model) / "tokens.txt", store.folder(model) / MANIFEST
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        os.truncate(file, 5)
    elif damage == "no record":
        record.unlink()
    else:
        record.write_text(record.read_text().replace("small", "other") if damage == "record of another" else "{")
    state = await model_state(store, model)
    assert state.startswith("damaged: ") and await ready_names(store, "stt") == []
    assert state.endswith(
        {"gone": "tokens.txt is missing", "cut": "has 5 bytes instead of 600"}.get(damage, "is missing")
    )
    await pull_model(store, model)
    assert await model_state(store, model) == "ready" and await verify(store, model) == []


async def test_a_wrong_file_changes_nothing(server: FileServer, tmp_path: Path) -> None:
    """The list has a new version of an installed model; the download is another file."""
    old = model_of(FILES, server.origin)
    await pull_model(store_of(tmp_path, old), old)
    before = contents(tmp_path / "small")
    new = model_of(OTHER, server.origin)
    store = store_of(tmp_path, new)
    assert await model_state(store, new) == "damaged: tokens.txt is of another version than the one that is known"
    server.files["/tokens.txt"] = b"liars!" * 100
    with pytest.raises(ModelFileError, match="it was discarded, nothing else has changed"):
        await pull_model(store, new)
    assert contents(tmp_path / "small") == before
    server.files["/tokens.txt"] = OTHER["tokens.txt"]
    assert list(await pull_model(store, new)) == ["tokens.txt"] and await verify(store, new) == []


async def test_unknown_hashes_are_trusted_on_first_use(server: FileServer, tmp_path: Path) -> None:
    model = model_of(FILES, server.origin, known=False)
    store = store_of(tmp_path, model)
    server.redirects = {"/encoder.onnx": "/store"}
    server.files["/store"] = FILES["encoder.onnx"]
    server.linked = {"X-Linked-ETag": f'"{sha256(FILES["encoder.onnx"])}"'}
    come = await pull_model(store, model)
    assert {name: record.origin for name, record in come.items()} == {
        "encoder.onnx": "host",
        "tokens.txt": "first copy",
    }
    assert await verify(store, model) == []
    (store.folder(model) / "tokens.txt").write_bytes(b"tokenz" * 100)
    assert await verify(store, model) == ["tokens.txt has changed since it came"]


async def test_a_model_without_its_package_has_that_state(server: FileServer, tmp_path: Path) -> None:
    model = model_of(FILES, server.origin, package="no-such-package")
    store = store_of(tmp_path, model)
    await pull_model(store, model)
    assert (
        await model_state(store, model) == "missing package: no-such-package" and await ready_names(store, "stt") == []
    )


async def test_an_open_old_file_stays_readable(server: FileServer, tmp_path: Path) -> None:
    """A running server maps its model's file."""
    old = model_of(FILES, server.origin)
    await pull_model(store_of(tmp_path, old), old)
    server.files["/tokens.txt"] = OTHER["tokens.txt"]
    new = model_of(OTHER, server.origin)
    with (tmp_path / "small/tokens.txt").open("rb") as file:
        await pull_model(store_of(tmp_path, new), new)
        assert file.read() == FILES["tokens.txt"]


async def test_an_unusable_folder_raises(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = model_of(FILES, server.origin)
    with pytest.raises(ModelFileError, match=r"file/models/.locks: Not a directory: .* set another \[models\] dir$"):
        await pull_model(store_of(tmp_path / "file/models", model), model)


async def test_no_download_starts_unless_all_files_fit(server: FileServer, tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk", "1m"):
        model = model_of({**FILES, "large.onnx": bytes(2_000_000)}, server.origin)
        with pytest.raises(
            ModelFileError, match=r"has \d MiB free, and 2 MiB are needed: free some, or set \[models\] dir"
        ):
            await pull_model(store_of(tmp_path / "disk", model), model)
    assert server.asked == []


PULLS = """
import asyncio, sys
from pathlib import Path
from models.model_files.known_models import KnownModel
from models.model_files.pull import pull
from models.model_files.store import ModelStore

model = KnownModel.model_validate_json(sys.argv[1])
store = ModelStore(Path(sys.argv[2]), [model])
come = asyncio.run(pull(store, model, on_wait=lambda: print("waits", flush=True), keep_free=0))
print(len(come))
"""


async def test_two_processes_do_not_pull_the_same_model_twice(server: FileServer, tmp_path: Path) -> None:
    model = model_of(FILES, server.origin)
    store = store_of(tmp_path, model)

    async def other() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", PULLS, model.model_dump_json(), tmp_path, stdout=asyncio.subprocess.PIPE
        )

    async with store.lock(model.name, pytest.fail):
        first, second = await asyncio.gather(other(), other())
        assert first.stdout and second.stdout
        assert await first.stdout.readline() == await second.stdout.readline() == b"waits\n"
        assert server.asked == []
    outputs = [(await process.communicate())[0] for process in (first, second)]
    assert sorted(outputs) == [b"0\n", b"2\n"], "one got both files, the other found them there"
    assert len(server.asked) == 2 and await verify(store, model) == []


async def test_the_lock_of_a_killed_process_is_released(server: FileServer, tmp_path: Path) -> None:
    server.breaks = [3000]
    model = model_of({"encoder.onnx": bytes(3_000_000)}, server.origin)
    server.files = {"/encoder.onnx": bytes(3_000_000)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PULLS, model.model_dump_json(), tmp_path, stdout=asyncio.subprocess.DEVNULL
    )
    await server.begun.wait()
    process.kill()
    await process.wait()
    store = store_of(tmp_path, model)
    await pull(store, model, on_wait=pytest.fail, pauses_s=[0.0], keep_free=0)
    assert await verify(store, model) == []
