"""A running server's models: downloads one at a time, imports of what is recognized, and removal of what nothing
uses."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from config.errors import Conflict, ModelFileError, NotFound
from models.installation.downloads import RATE_WINDOW_S, TransferRate
from models.installation.installer import IMPORT_DIRECTORY, ModelInstaller
from models.installation.reports import ModelReport
from models.loading.model_usage import ModelSpeed, ModelUsage
from models.model_files.export_bundle import write_bundle
from models.model_files.known_models import OPERATOR_LIST, KnownModel
from models.model_files.store import ModelStore
from tests.models.model_files.file_server import FileServer, file_server
from tests.models.model_files.tiny_model_files import FILES, contents, model_of

GGUF = b"GGUF" + bytes(100)


@pytest.fixture
async def server() -> AsyncIterator[FileServer]:
    async with file_server(b"") as server:
        server.files = {f"/{name}": content for name, content in FILES.items()}
        yield server


class Machine:
    """A folder of models with an installer, and what it has told."""

    def __init__(self, folder: Path, usage: ModelUsage, **named: str) -> None:
        self.folder = folder
        self.calls = 0
        self.told: list[tuple[str, ModelReport | None]] = []
        self.installer = ModelInstaller(
            folder, lambda: usage, lambda: self.calls, named_by_settings=named, reserve_bytes=0, keep_free=0
        )
        self._changed = asyncio.Event()
        self.installer.on_change = self._on_change

    def list(self, *models: KnownModel) -> None:
        entries = [json.loads(model.model_dump_json(exclude_none=True)) for model in models]
        (self.folder / OPERATOR_LIST).write_text(json.dumps(entries))

    def _on_change(self, name: str, report: ModelReport | None) -> None:
        self.told.append((name, report))
        self._changed.set()

    async def until(self, name: str, is_so: Callable[[ModelReport | None], bool]) -> ModelReport | None:
        """Waits until it is told of the model; returns what it is told then."""
        async with asyncio.timeout(30):
            while True:
                found = next((each for each in reversed(self.told) if each[0] == name and is_so(each[1])), None)
                if found is not None:
                    return found[1]
                self._changed.clear()
                await self._changed.wait()

    async def checks(self) -> None:
        """Waits for the checks that have begun."""
        await asyncio.gather(*self.installer._checks)

    async def upload(self, name: str, content: bytes, own_name: str | None = None, size: int | None = None) -> Any:
        async def blocks() -> AsyncIterator[bytes]:
            for at in range(0, len(content), 1000):
                yield content[at : at + 1000]

        return await self.installer.import_upload(name, len(content) if size is None else size, blocks(), own_name, ())


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path, ModelUsage({"loaded": ModelSpeed()}), named="llm")
    yield machine
    await machine.installer.close()


def is_over(report: ModelReport | None) -> bool:
    return report is not None and (report.download is None or report.download.state == "failed")


async def test_a_download_is_told_until_it_is_installed(machine: Machine, server: FileServer) -> None:
    machine.list(model_of(FILES, server.origin))
    begun = await machine.installer.download("small")
    assert begun.download is not None
    done = await machine.until("small", is_over)
    assert done is not None and done.download is None and done.entry.state.name == "ready"
    told = [report.download for _, report in machine.told if report is not None and report.download is not None]
    assert {each.total for each in told} == {sum(map(len, FILES.values()))}
    with pytest.raises(Conflict, match="installed already"):
        await machine.installer.download("small")


async def test_one_model_is_downloaded_at_a_time(machine: Machine, server: FileServer) -> None:
    first, second = (model_of(FILES, server.origin, name=name) for name in ("first", "second"))
    machine.list(first, second)
    server.stops_after = 1000
    await machine.installer.download("first")
    await machine.until(
        "first",
        lambda report: report is not None and report.download is not None and report.download.state == "downloading",
    )
    waiting = await machine.installer.download("second")
    assert waiting.download is not None and waiting.download.state == "waiting"
    with pytest.raises(Conflict, match="is being downloaded already"):
        await machine.installer.download("first")
    with pytest.raises(Conflict, match="stop that first"):
        await machine.installer.delete("first")
    await server.begun.wait()
    assert {path for path, _, _ in server.asked} == {"/encoder.onnx"} and len(server.asked) == 1
    server.stops_after = None
    stopped = await machine.installer.cancel_download("first")
    assert stopped.download is None
    done = await machine.until("second", is_over)
    assert done is not None and done.entry.state.name == "ready"


async def test_a_cancelled_download_goes_on_from_there(machine: Machine, server: FileServer) -> None:
    """The encoder has come, and the second file is under way."""
    machine.list(model_of(FILES, server.origin))
    server.stops_after = len(FILES["encoder.onnx"])
    server.files["/tokens.txt"] = FILES["tokens.txt"] + b"x" * 10**6  # never comes to its end

    def has_encoder(report: ModelReport | None) -> bool:
        return report is not None and report.download is not None and report.download.received >= 7000

    await machine.installer.download("small")
    await machine.until("small", has_encoder)
    stopped = await machine.installer.cancel_download("small")
    assert stopped.entry.state.detail.endswith("% is here")
    with pytest.raises(Conflict, match="is not being downloaded"):
        await machine.installer.cancel_download("small")
    server.stops_after, server.files["/tokens.txt"] = None, FILES["tokens.txt"]
    server.asked.clear()
    await machine.installer.download("small")
    await machine.until("small", lambda report: report is not None and report.entry.state.name == "ready")
    assert "/encoder.onnx" not in [path for path, _, _ in server.asked]


async def test_a_broken_download_is_told_and_goes_on(machine: Machine, server: FileServer) -> None:
    machine.list(model_of(FILES, server.origin))
    server.breaks = [3000]
    await machine.installer.download("small")
    done = await machine.until("small", is_over)
    assert done is not None and done.entry.state.name == "ready"
    assert [path for path, _, _ in server.asked].count("/encoder.onnx") == 2


@pytest.mark.parametrize("fault", ["wrong", "gone", "no room"])
async def test_a_failed_download_says_why_and_can_be_forgotten(
    machine: Machine, server: FileServer, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.list(model_of(FILES, server.origin))
    match fault:
        case "wrong":
            server.files["/encoder.onnx"] = b"ENCODER" * 1000
        case "gone":
            server.statuses = [404]
        case "no room":
            full = shutil.disk_usage(machine.folder)._replace(free=100)
            monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    await machine.installer.download("small")
    failed = await machine.until("small", is_over)
    assert failed is not None and failed.download is not None and failed.download.problem is not None
    words = {"wrong": "its SHA-256 is", "gone": "no longer exists", "no room": "are needed: free some"}
    assert words[fault] in failed.download.problem
    assert failed.entry.state.name == "not pulled"
    assert (await machine.installer.cancel_download("small")).download is None


async def test_a_file_of_a_listed_model_is_kept_until_the_others_are_there(machine: Machine) -> None:
    machine.list(model_of(FILES))
    result = await machine.upload("encoder.onnx", FILES["encoder.onnx"])
    assert (result.installed, result.missing) == ((), (("small", ("tokens.txt",)),))
    assert (await machine.installer.model("small")).entry.state.detail == "92 % is here"
    result = await machine.upload("renamed.txt", FILES["tokens.txt"])
    assert result.installed == ("small",)
    assert (await machine.installer.model("small")).entry.state.name == "ready"
    assert sorted(path.name for path in machine.folder.iterdir() if not path.name.startswith(".")) == [
        OPERATOR_LIST, "small"
    ]  # fmt: skip


async def test_an_own_gguf_file_and_a_bundle_are_recognized(machine: Machine, tmp_path_factory: Any) -> None:
    result = await machine.upload("reception.bin", GGUF, "reception")
    assert result.installed == ("reception",)
    report = await machine.installer.model("reception")
    assert (report.entry.source, report.entry.size) == ("own", len(GGUF))
    model, other = model_of(FILES), tmp_path_factory.mktemp("other")
    source = Machine(other, ModelUsage())
    source.list(model)
    for name, content in FILES.items():
        await source.upload(name, content)
    await source.installer.close()
    await asyncio.to_thread(write_bundle, ModelStore(other, [model]), [model], other / "all.tar")
    machine.list(model)
    assert (await machine.upload("all.tar", (other / "all.tar").read_bytes())).installed == ("small",)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.zip", b"PK\x03\x04" + bytes(50), "a ZIP archive: unpack it"),
        ("voice.onnx", b"\x08\x09" + bytes(50), "no list of models has"),
        ("voice.onnx.json", b'{"audio": {}}', "a JSON file that belongs to no listed model"),
        ("model.gguf", b"not so", "no GGUF file, no tar file"),
        ("encoder.onnx", b"another", "is not the file that small means"),
        ("auto.gguf", GGUF, "another model is called auto"),
        ("small.gguf", GGUF, "another model is called small"),
        ("../evil.gguf", GGUF, "is no name for a model's file"),
        (".hidden", GGUF, "is no name for a model's file"),
        ("a b.gguf", GGUF, "is no name for a model's file"),
    ],
)
async def test_what_is_no_model_is_refused_with_words(machine: Machine, name: str, content: bytes, words: str) -> None:
    machine.list(model_of(FILES))
    before = contents(machine.folder)
    with pytest.raises(ModelFileError, match=words):
        await machine.upload(name, content)
    assert contents(machine.folder) == before and not any((machine.folder / ".uploads").glob("*"))


@pytest.mark.parametrize("size", [0, len(GGUF) + 1, len(GGUF) - 1, 1 << 40])
async def test_an_upload_of_another_size_than_was_told_is_refused(machine: Machine, size: int) -> None:
    with pytest.raises(ModelFileError, match="bytes"):
        await machine.upload("own.gguf", GGUF, size=size)
    assert contents(machine.folder) == {}


async def test_only_plain_files_of_the_folder_for_imports_can_be_imported(machine: Machine) -> None:
    folder = machine.folder / IMPORT_DIRECTORY
    folder.mkdir()
    (folder / "own.gguf").write_bytes(GGUF)
    outside = machine.folder / "secret.gguf"
    outside.write_bytes(GGUF)
    (folder / "link.gguf").symlink_to(outside)
    assert await machine.installer.importable_files() == [("own.gguf", len(GGUF))]
    for name in ("link.gguf", "absent.gguf"):
        with pytest.raises(ModelFileError, match="there is no file"):
            await machine.installer.import_from_folder(name, None, ())
    with pytest.raises(ModelFileError, match="is no name"):
        await machine.installer.import_from_folder("../secret.gguf", None, ())
    result = await machine.installer.import_from_folder("own.gguf", "mine", {"theirs"})
    assert result.installed == ("mine",) and (folder / "own.gguf").exists()
    with pytest.raises(ModelFileError, match="another model is called theirs"):
        await machine.installer.import_from_folder("own.gguf", "theirs", {"theirs"})


async def test_a_model_in_use_is_not_deleted(machine: Machine) -> None:
    for name in ("loaded", "named", "spare"):
        (machine.folder / f"{name}.gguf").write_bytes(GGUF)
    for name, words in (("loaded", "has loaded it"), ("named", r"\[models\] llm"), ("flite", "built in")):
        with pytest.raises(Conflict, match=words):
            await machine.installer.delete(name)
    assert await machine.installer.delete("spare") == len(GGUF)
    assert sorted(path.name for path in machine.folder.glob("*.gguf")) == ["loaded.gguf", "named.gguf"]
    assert await machine.until("spare", lambda report: report is None) is None
    with pytest.raises(NotFound):
        await machine.installer.delete("spare")


async def test_deleting_removes_installed_files_and_what_a_download_has_left(machine: Machine) -> None:
    machine.list(model_of(FILES))
    with pytest.raises(NotFound, match="has no files"):
        await machine.installer.delete("small")
    await machine.upload("encoder.onnx", FILES["encoder.onnx"])
    assert await machine.installer.delete("small") == len(FILES["encoder.onnx"])
    assert (await machine.installer.model("small")).entry.state.detail == ""
    for name, content in FILES.items():
        await machine.upload(name, content)
    await machine.checks()
    assert await machine.installer.delete("small") > sum(map(len, FILES.values()))
    assert (await machine.installer.model("small")).entry.state.name == "not pulled"


async def test_a_check_tells_what_has_changed_and_waits_for_the_end_of_calls(machine: Machine) -> None:
    machine.list(model_of(FILES))
    for name, content in FILES.items():
        await machine.upload(name, content)
    machine.calls = 1
    with pytest.raises(Conflict, match="live calls, now 1"):
        await machine.installer.check("small")
    machine.calls = 0
    await machine.checks()
    (machine.folder / "small" / "tokens.txt").write_bytes(b"TOKENS" * 100)
    machine.told.clear()
    await machine.installer.check("small")
    report = await machine.until("small", lambda report: report is not None and report.check == "failed")
    assert report is not None and report.problems == ("tokens.txt has changed since it came",)


def test_the_speed_is_that_of_the_last_seconds() -> None:
    rate = TransferRate()
    assert rate.bytes_per_s is None
    for second in range(20):
        rate.add(float(second), 100 * second if second < 10 else 1000 + 10 * (second - 10))
    assert rate.bytes_per_s == pytest.approx(10, abs=1e-9) and RATE_WINDOW_S == 5
    rate.add(20.0, 0)
    assert rate.bytes_per_s is None
