"""`trunkline models`: models are listed, downloaded, verified, and imported on machines without a network."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.models.llm.llama.tiny_gguf import write_tiny_gguf
from tests.models.model_files.faulty_load_checks import write_faults
from tests.models.model_files.file_server import FileServer, file_server, sha256
from tests.models.model_files.tiny_model_files import FILES, model_of
from tests.trunkline.server_process import TRUNKLINE, command, environment

UNTRIED = ", but elsewhere/zipformer runs no stt here"
"""The end of the state of `small`, which has no engine and so no trial."""
READY = f"ready{UNTRIED}"


@pytest.fixture
async def server() -> AsyncIterator[FileServer]:
    async with file_server(b"") as server:
        server.files = {f"/{name}": content for name, content in FILES.items()}
        yield server


def data_dir_with_list(folder: Path, server: FileServer, *, known: bool = True) -> Path:
    """A data directory whose list has the model `small`, with its files on that server."""
    (folder / "models").mkdir(parents=True)
    model = model_of(FILES, server.origin, known=known, engine="elsewhere/zipformer")
    (folder / "models/known_models.json").write_text(f"[{model.model_dump_json(exclude_none=True)}]")
    return folder


async def models(data: Path, *arguments: str | Path) -> tuple[int, str, str]:
    return await command("models", *map(str, arguments), folder=data.parent, environment=environment(data, {}))


def row(output: str, name: str) -> str:
    """The line of a model, with single blanks."""
    (line,) = [line for line in output.splitlines() if f" {name} " in line]
    return " ".join(line.split())


async def test_a_model_is_listed_pulled_verified_and_imported(server: FileServer, tmp_path: Path) -> None:
    data = await asyncio.to_thread(data_dir_with_list, tmp_path / "data", server)
    code, out, err = await models(data, "list")
    assert (code, err) == (0, ""), err
    assert row(out, "small") == f"stt small 7.6 kB MIT en not pulled{UNTRIED}"
    assert row(out, "pocketsphinx") == "stt pocketsphinx - - - ready"
    assert row(out, "lexical-end-of-turn") == "eot lexical-end-of-turn - - - ready"
    assert "Apache-2.0 many not pulled" in row(out, "qwen3-0.6b-q4_0")

    server.breaks = [3000]
    code, out, err = await models(data, "pull", "small")
    assert code == 0, err
    assert err.splitlines()[0] == f"small: 2 files, 7.6 kB, from 127.0.0.1 into {data}/models/small"
    assert re.search(r"^small: encoder.onnx: interrupted \(.+\), trying again (now|in \d+ s)$", err, re.MULTILINE), err
    sums = [f"small: {name}, " for name in FILES]
    assert [line.startswith(start) for line, start in zip(out.splitlines(), sums, strict=False)] == [True, True]
    assert all(f"SHA-256 {sha256(content)}, as listed" in out for content in FILES.values())
    assert out.endswith(f"small: {READY}\n") and "small: encoder.onnx: 7 kB of 7 kB, 100 %" in err
    assert (await models(data, "pull", "small"))[1] == f"small: is installed already, {READY}\n"
    assert await models(data, "verify") == (0, "ok    small: 2 files\n", "")

    await asyncio.to_thread(shutil.make_archive, str(tmp_path / "usb"), "gztar", data / "models", "small")
    other = await asyncio.to_thread(data_dir_with_list, tmp_path / "other/data", server)
    server.asked.clear()
    assert await models(other, "import", tmp_path / "usb.tar.gz") == (0, f"small: {READY}\n", "")
    assert await models(other, "verify", "small") == (0, "ok    small: 2 files\n", "")
    assert server.asked == []

    (other / "models/small/tokens.txt").write_bytes(b"tokenz" * 100)
    assert await models(other, "verify") == (
        1, "FAIL  small: tokens.txt has changed since it came: run `trunkline models pull small`\n", ""
    )  # fmt: skip


async def test_models_are_listed_with_their_state_in_the_order_of_auto(server: FileServer, tmp_path: Path) -> None:
    """A file that is no model, and a model without an engine, are not ready."""
    data = tmp_path / "data"
    (data / "models").mkdir(parents=True)
    listed = [
        model_of({"a.gguf": b"gguf"}, server.origin, name=name, kind=kind, engine="llama.cpp")
        for name, kind in (("listed", "llm"), ("sentences", "embedding"))
    ]
    (data / "models/known_models.json").write_text(f"[{','.join(each.model_dump_json() for each in listed)}]")
    await asyncio.to_thread(write_tiny_gguf, data / "models/a-own.gguf")
    (data / "models/b-own.gguf").write_bytes(b"<html>not found</html>")
    (data / "models/c-own.gguf").symlink_to("/media/usb/gone.gguf")
    server.files["/a.gguf"] = b"gguf"
    code, out, err = await models(data, "pull", "sentences")
    assert (code, out.splitlines()[-1]) == (0, "sentences: ready, but llama.cpp runs no embedding here"), err
    code, out, _ = await models(data, "list")
    assert row(out, "a-own").endswith("- - ready") and "is no GGUF file" in row(out, "b-own")
    assert row(out, "c-own").startswith("llm c-own - - - The model c-own cannot be read: No such file or directory")
    assert row(out, "sentences").endswith("ready, but llama.cpp runs no embedding here")
    assert out.index(" listed ") < out.index(" a-own ")


async def test_pulled_and_verified_models_have_a_trial(server: FileServer, tmp_path: Path) -> None:
    """A file with the right checksum that crashes its process, or is no model, is reported at once."""
    data = tmp_path / "data"
    (data / "models").mkdir(parents=True)
    tiny = await asyncio.to_thread(write_tiny_gguf, data / "models/a-own.gguf")
    (data / "models/b-own.gguf").write_bytes(b"<html>not found</html>")
    server.files = {"/model.gguf": tiny.read_bytes(), "/other.gguf": b"GGUF and no more"}
    listed = [
        model_of({file[1:]: server.files[file]}, server.origin, name=name, kind="llm", engine="llama.cpp")
        for name, file in (("good", "/model.gguf"), ("bad", "/other.gguf"))
    ]
    entries = [each.model_dump(mode="json", exclude_none=True) for each in listed]
    for entry in entries:
        entry["files"][0]["role"] = "model"
    (data / "models/known_models.json").write_text(json.dumps(entries))
    code, out, err = await models(data, "pull", "good", "bad")
    assert code == 0, err
    assert "good: ready\n" in out and "bad: ready, but The language model " in out
    faults = {**environment(data, {}), "PYTHONPATH": str(write_faults(tmp_path / "path", {"a-own": "SIGSEGV"}))}
    code, out, err = await command("models", "verify", folder=tmp_path, environment=faults)
    good, bad, own, other = out.splitlines()
    assert (code, good) == (1, "ok    good: 1 file, passed its load check"), err
    assert bad.startswith("FAIL  bad: The language model ") and other.startswith("FAIL  b-own: The language model ")
    assert (
        own.startswith("FAIL  a-own: the model a-own (")
        and "its load check was ended by SIGSEGV: choose another" in own
    )


async def test_unknown_checksums_are_shown_with_their_origin(server: FileServer, tmp_path: Path) -> None:
    data = await asyncio.to_thread(data_dir_with_list, tmp_path / "data", server, known=False)
    server.redirects = {"/encoder.onnx": "/store"}
    server.files["/store"] = FILES["encoder.onnx"]
    server.linked = {"X-Linked-ETag": f'"{sha256(FILES["encoder.onnx"])}"'}
    code, out, err = await models(data, "pull", "small")
    assert code == 0, err
    assert f"SHA-256 {sha256(FILES['encoder.onnx'])}, as its host states; remembered from now on" in out
    assert f"SHA-256 {sha256(FILES['tokens.txt'])}, which no source confirms; remembered from now on" in out


async def test_errors_are_reported_in_one_line(server: FileServer, tmp_path: Path) -> None:
    data = await asyncio.to_thread(data_dir_with_list, tmp_path / "data", server)
    server.files["/tokens.txt"] = b"liars!" * 100
    cases: list[tuple[list[str], str]] = [
        (["pull", "small", "none"], "there is no model 'none' to get: see `trunkline models list`"),
        (["pull", "small"], f"{server.origin}/tokens.txt is not what it should be: its SHA-256 is "),
        (["verify", "none"], "there is no model 'none' to get"),
        (["import", "nowhere"], "nowhere is no file and no folder"),
    ]
    for arguments, words in cases:
        code, out, err = await models(data, *arguments)
        last = err.splitlines()[-1]
        assert (code, out) == (1, "") and last.startswith(f"trunkline: {words}"), err
    assert row((await models(data, "list"))[1], "small") == f"stt small 7.6 kB MIT en not pulled: 92 % is here{UNTRIED}"
    assert await models(tmp_path / "empty", "verify") == (
        0, f"there are no model files in {tmp_path}/empty/models\n", ""
    )  # fmt: skip


async def test_an_interrupted_pull_is_resumed(server: FileServer, tmp_path: Path) -> None:
    """SIGINT, and the command again."""
    large = bytes(range(256)) * 20_000
    model = model_of({"large.onnx": large}, server.origin)
    listed = json.dumps([json.loads(model.model_dump_json(exclude_none=True))])
    data = await asyncio.to_thread(data_dir_with_list, tmp_path / "data", server)
    (data / "models/known_models.json").write_text(listed)
    server.files, server.stops_after = {"/large.onnx": large}, 3_000_000
    # A shell ignores SIGINT for its background jobs, and the command would inherit that.
    process = await asyncio.create_subprocess_exec(
        "env", "--default-signal=INT", TRUNKLINE, "models", "pull", "small",
        env=environment(data, {}), stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stderr is not None
    interrupted = False
    async for line in process.stderr:
        if re.search(rb" [45]\d %", line) and not interrupted:
            process.send_signal(signal.SIGINT)
            interrupted = True
    assert interrupted and await process.wait() == 130
    server.stops_after = None
    server.asked.clear()
    assert (await models(data, "pull", "small"))[0] == 0
    ((_, asked, _),) = server.asked
    assert asked is not None and int(asked.removeprefix("bytes=").removesuffix("-")) > 1_500_000
    assert (await models(data, "verify"))[0] == 0
