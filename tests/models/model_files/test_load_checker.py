"""A model whose load check ends without a result is left out with one log line, and the next one is used."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from structlog.testing import capture_logs

from config.errors import LoadCheckError, StartupError
from models.llm.llama.load_check import gguf_candidate, header_candidate
from models.loading import loader
from models.loading.catalogue import LanguageModelInfo
from models.model_files import load_checker
from models.model_files.load_checker import LoadCheckCandidate, LoadChecker
from models.model_files.store import ModelStore
from models.protocols import ChatMessage, ChatPrompt, Closable, LanguageModel, LlmOutput, TextDelta
from tests.models.llm.llama import tiny_gguf
from tests.models.llm.llama.tiny_gguf import WIDE, write_tiny_gguf
from tests.models.model_files.faulty_load_checks import FAULTS, break_load_checks

PROMPT = ChatPrompt("call", "The kitchen opens at seven.", [ChatMessage("user", "When does the kitchen open?")])
REMEDIES = {
    "SIGKILL": "most likely for want of memory: choose a smaller model, or give this server more",
    "time limit": "choose a smaller model; `trunkline models verify a-first` repeats the check",
}
OTHER_REMEDY = "choose another model or another file of it; `trunkline models verify a-first` repeats the check"


@pytest.fixture(scope="module")
def checked_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, of which the second has passed its load check."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("a-first", "b-second"):
        write_tiny_gguf(folder / f"{name}.gguf")
    LoadChecker(folder).require(gguf_candidate(folder / "b-second.gguf", "b-second"))
    for name in ("a-first", "b-second"):
        LoadChecker(folder).require(header_candidate(folder / f"{name}.gguf", name))
    return folder


@pytest.fixture
def folder(checked_folder: Path) -> Iterator[Path]:
    """The same, without results that a test stored for the first."""
    yield checked_folder
    (checked_folder / ".tried/a-first.json").unlink(missing_ok=True)


def break_first(monkeypatch: pytest.MonkeyPatch, folder: Path, fault: str, limit_s: float = 0.5) -> None:
    """Make the load check of the first model end with a fault during the test; a hanging one has a short limit."""
    break_load_checks(monkeypatch, folder / "path", {"a-first": fault})
    short = limit_s if fault == "time limit" else 60.0
    monkeypatch.setattr(
        load_checker, "time_limit_s", lambda candidate, _: short if candidate.name == "a-first" else 60.0
    )


class LoadedModels:
    """The language models after a start."""

    def __init__(self, models: Mapping[LanguageModelInfo, LanguageModel]) -> None:
        self.named = {info.name: model for info, model in models.items()}
        self.default = next(info.name for info in models if info.is_default)

    def close(self) -> None:
        for model in self.named.values():
            if isinstance(model, Closable):
                model.close()


@asynccontextmanager
async def load_language_models(folder: Path, llm: str = "auto") -> AsyncIterator[LoadedModels]:
    with ExitStack() as opened:
        made = await asyncio.to_thread(loader._language_models, ModelStore(folder, ()), llm, opened, 2)
        opened.pop_all()
    models = LoadedModels(made)
    try:
        yield models
    finally:
        await asyncio.to_thread(models.close)


async def response_of(model: LanguageModel) -> list[LlmOutput]:
    return [part async for part in model.respond(PROMPT)]


def left_out_lines(logs: list[Any]) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == "model.left_out"]


def children() -> set[int]:
    """Child processes of this one that were not waited for."""
    pids: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread has ended
            pids.update(map(int, (task / "children").read_text().split()))
    return pids


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_next_model_answers_and_one_line_says_why(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    break_first(monkeypatch, tmp_path, fault)
    before = children()
    with capture_logs() as logs:
        async with load_language_models(folder) as models:
            assert models.default == "b-second"
            assert any(isinstance(part, TextDelta) for part in await response_of(models.named["b-second"]))
    [line] = left_out_lines(logs)
    logged = fault if fault.startswith(("SIG", "time", "status")) else "no result"
    assert (line["name"], line["kind"], line["log_level"], line["fault"]) == ("a-first", "llm", "error", logged)
    assert line["file"] == str(folder / "a-first.gguf") and line["file"] in line["error"]
    assert line["error"].endswith(REMEDIES.get(fault, OTHER_REMEDY)) and "\n" not in line["error"]
    assert children() == before
    assert not [line for line in logs if line["event"] == "model.missing"]


@pytest.mark.parametrize(("fault", "again"), [("SIGSEGV", False), ("time limit", False), ("SIGKILL", True)])
def test_a_failure_is_stored_for_a_day_unless_memory_was_short(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, again: bool
) -> None:
    candidate = gguf_candidate(folder / "a-first.gguf", "a-first")
    with monkeypatch.context() as patch:
        break_first(patch, tmp_path, fault)
        with pytest.raises(LoadCheckError) as first:
            LoadChecker(folder).require(candidate)
    if again:
        assert LoadChecker(folder).require(candidate)["tokens"] == 64
        return
    with pytest.raises(LoadCheckError) as second:
        LoadChecker(folder).require(candidate)
    assert (second.value.message, second.value.fault) == (first.value.message, first.value.fault)
    monkeypatch.setattr(load_checker, "FAILURE_MAX_AGE_S", 0.0)
    assert LoadChecker(folder).require(candidate)["tokens"] == 64


async def test_the_responder_replaces_a_model_that_the_setting_names_and_that_fails(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_first(monkeypatch, tmp_path, "SIGSEGV")
    with capture_logs() as logs:
        async with load_language_models(folder, "a-first") as models:
            assert models.default == "extractive-responder"
            assert await response_of(models.named[models.default]) == [TextDelta("The kitchen opens at seven.")]
    assert [line["fault"] for line in left_out_lines(logs)] == ["SIGSEGV"]


async def test_a_lazily_loaded_model_is_checked_first_and_falls_back_to_the_responder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_first(monkeypatch, tmp_path, "SIGSEGV")
    async with load_language_models(folder, "extractive-responder") as models:
        first = models.named["a-first"]
        with capture_logs() as logs:
            assert await response_of(first) == [TextDelta("The kitchen opens at seven.")]
            assert await response_of(first) == [TextDelta("The kitchen opens at seven.")]
    assert [line["fault"] for line in left_out_lines(logs)] == ["SIGSEGV"]


async def test_shutdown_does_not_wait_for_a_load_check(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_first(monkeypatch, tmp_path, "time limit", 600.0)
    before = children()
    async with load_language_models(folder, "extractive-responder") as models:
        asked = asyncio.create_task(response_of(models.named["a-first"]))
        await asyncio.to_thread(_wait_for, lambda: children() != before)
        await asyncio.to_thread(models.close)
        async with asyncio.timeout(10):
            assert await asked == [TextDelta("The kitchen opens at seven.")]
    assert children() == before


async def test_a_file_that_kills_the_process_that_opens_it_does_not_stop_the_start(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headers of models that are not loaded are read in another process too."""
    (folder / ".tried/a-first.header").unlink()
    break_first(monkeypatch, tmp_path, "SIGSEGV")
    with capture_logs() as logs:
        async with load_language_models(folder, "b-second") as models:
            assert list(models.named) == ["b-second", "extractive-responder"]
    assert [line["fault"] for line in left_out_lines(logs)] == ["SIGSEGV"]
    with capture_logs() as logs:
        async with load_language_models(folder, "a-first") as models:
            assert list(models.named) == ["extractive-responder", "b-second"]
    assert [line["fault"] for line in left_out_lines(logs)] == ["SIGSEGV"], "told once, whoever looks at it"
    (folder / ".tried/a-first.header").unlink()
    monkeypatch.undo()
    path = folder / "a-first.gguf"
    await asyncio.to_thread(lambda: LoadChecker(folder).require(header_candidate(path, "a-first")))


def figures(value: float) -> Callable[..., Any]:
    """Weights of which the last ones are all equal."""
    weights = tiny_gguf._weights
    return lambda *given: weights(*given) | {
        "output.weight": np.full_like(weights(*given)["output.weight"], value)
    }  # fmt: skip


@pytest.mark.parametrize(("value", "what"), [(np.nan, "no numbers"), (0.0, "the same figure for every token")])
def test_a_model_without_usable_output_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, what: str
) -> None:
    monkeypatch.setattr(tiny_gguf, "_weights", figures(value))
    path = write_tiny_gguf(tmp_path / "mute.gguf")
    with pytest.raises(LoadCheckError, match=what) as failed:
        LoadChecker(tmp_path).require(gguf_candidate(path, "mute"))
    assert failed.value.fault == "no result"


def test_a_model_is_checked_again_if_file_library_or_processor_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_gguf(tmp_path / "harbour.gguf")
    results = iter(range(100))
    monkeypatch.setattr(LoadChecker, "_run_check", lambda *_: {"trial": next(results)})
    known: set[Any] = set()

    def is_checked() -> bool:
        """True if a load check ran, and no stored result was used."""
        result = LoadChecker(tmp_path).require(gguf_candidate(path, "harbour"))["trial"]
        is_new = result not in known
        known.add(result)
        return is_new

    assert (is_checked(), is_checked()) == (True, False)
    result_file = tmp_path / ".tried/harbour.json"
    assert result_file.parent.stat().st_mode & 0o77 == 0
    os.utime(path, ns=(1, 1))
    assert (is_checked(), is_checked()) == (True, False)
    monkeypatch.setattr(load_checker, "version", lambda _: "9.9")
    assert (is_checked(), is_checked()) == (True, False)
    monkeypatch.setattr(load_checker, "cpu_fingerprint", lambda: "x86_64 of another kind")
    assert (is_checked(), is_checked()) == (True, False)
    built_anew = tmp_path / "libggml.so"
    for content in (b"", b"of the same version"):
        built_anew.write_bytes(content)
        monkeypatch.setattr("models.llm.llama.load_check._library_files", lambda: (built_anew,))
        assert (is_checked(), is_checked()) == (True, False)
    result_file.write_text("{}")
    assert (is_checked(), is_checked()) == (True, False)
    LoadChecker(tmp_path).delete_results("harbour")
    assert (is_checked(), is_checked()) == (True, False)


def test_a_load_check_whose_result_cannot_be_stored_is_repeated(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "harbour.gguf")
    (tmp_path / ".tried").write_text("in the way")
    with capture_logs() as logs:
        assert LoadChecker(tmp_path).require(gguf_candidate(path, "harbour"))["tokens"] == 64
    assert [line["model"] for line in logs if line["event"] == "model.trial_not_noted"] == ["harbour"]


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_0", "Q4_K"])
def test_a_file_of_each_kind_of_weights_passes(tmp_path: Path, kind: str) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", kind=GGMLQuantizationType[kind], shape=WIDE)
    assert LoadChecker(tmp_path).require(gguf_candidate(path, "tiny"))["tokens"] == 64


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"gone cannot be read: No such file or directory: .*gone\.gguf"):
        LoadChecker(tmp_path).require(LoadCheckCandidate("gone", "llama.cpp", {}, (tmp_path / "gone.gguf",), ()))


def test_a_load_check_gets_none_of_the_servers_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRUNKLINE_API__KEY", "secret")
    given = load_checker._environment(LoadCheckCandidate("any", "llama.cpp", {}, (tmp_path,), ()))
    assert "secret" not in given.values() and given["PATH"] == os.environ["PATH"]


def test_a_split_models_fingerprint_has_all_its_files(tmp_path: Path) -> None:
    parts = [tmp_path / f"large-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for part in parts:
        part.write_bytes(b"GGUF")
    assert gguf_candidate(parts[0], "large").files == header_candidate(parts[0], "large").files == tuple(parts)
    first = gguf_candidate(parts[0], "large").fingerprint()
    parts[2].write_bytes(b"GGUF2")
    assert gguf_candidate(parts[0], "large").fingerprint() != first


ORPHAN = """
import sys
from pathlib import Path
from models.llm.llama.load_check import gguf_candidate
from models.model_files.load_checker import LoadChecker
path = Path(sys.argv[1])
LoadChecker(path.parent).require(gguf_candidate(path, path.stem))
"""


def test_a_load_check_leaves_no_core_has_bounded_memory_and_ends_with_a_killed_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.move(write_tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "a-first.gguf")
    break_load_checks(monkeypatch, tmp_path / "path", {"a-first": "time limit"})
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    server = subprocess.Popen([sys.executable, "-P", "-c", ORPHAN, str(path)], env=environment)
    try:
        is_checked = _wait_for(lambda: _confined_child(server.pid))
        assert Path(f"/proc/{is_checked}/oom_score_adj").read_text() == "1000\n"
        _wait_for(lambda: 0 < resource.prlimit(is_checked, resource.RLIMIT_DATA)[0] < 5 << 30)  # -1: no limit
    finally:
        server.kill()
        server.wait()
    _wait_for(lambda: not _is_running(is_checked))


def _confined_child(parent: int) -> int | None:
    """The child of a process, once its core limit is 0."""
    for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with suppress(ProcessLookupError):
            if resource.prlimit(int(each), resource.RLIMIT_CORE) == (0, 0):
                return int(each)
    return None


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _wait_for(ask: Callable[[], Any]) -> Any:
    """Waits some seconds for a condition, and returns its value."""
    until = time.monotonic() + 30
    while not (found := ask()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found
