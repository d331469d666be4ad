"""A model whose trial ends without a result is left out, in one line, and the next one answers."""

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

from config.errors import ModelTrialError, StartupError
from models.llm.llama.trial import gguf_candidate, header_candidate
from models.loading import loader
from models.loading.catalogue import LanguageModelInfo
from models.model_files import trial
from models.model_files.store import ModelStore
from models.model_files.trial import ModelTrials, TrialCandidate
from models.protocols import ChatMessage, ChatPrompt, Closable, LanguageModel, LlmOutput, TextDelta
from tests.models.llm.llama import tiny_gguf
from tests.models.llm.llama.tiny_gguf import WIDE, write_tiny_gguf
from tests.models.model_files.faulty_trials import FAULTS, break_trials

PROMPT = ChatPrompt("call", "The kitchen opens at seven.", [ChatMessage("user", "When does the kitchen open?")])
REMEDIES = {
    "SIGKILL": "most likely for want of memory: choose a smaller model, or give this server more",
    "time limit": "choose a smaller model; `trunkline models verify a-first` tries it again",
}
OTHER_REMEDY = "choose another model or another file of it; `trunkline models verify a-first` tries it again"


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, of which the second has passed its trial."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("a-first", "b-second"):
        write_tiny_gguf(folder / f"{name}.gguf")
    ModelTrials(folder).require(gguf_candidate(folder / "b-second.gguf", "b-second"))
    for name in ("a-first", "b-second"):
        ModelTrials(folder).require(header_candidate(folder / f"{name}.gguf", name))
    return folder


@pytest.fixture
def folder(passed: Path) -> Iterator[Path]:
    """The same, whatever a test has noted of the first."""
    yield passed
    (passed / ".tried/a-first.json").unlink(missing_ok=True)


def broken(monkeypatch: pytest.MonkeyPatch, folder: Path, fault: str, limit_s: float = 0.5) -> None:
    """For the test, the trial of the first model ends with a fault; one that does not end has a short limit."""
    break_trials(monkeypatch, folder / "path", {"a-first": fault})
    short = limit_s if fault == "time limit" else 60.0
    monkeypatch.setattr(trial, "time_limit_s", lambda candidate, _: short if candidate.name == "a-first" else 60.0)


class Loaded:
    """The language models that a start would have."""

    def __init__(self, models: Mapping[LanguageModelInfo, LanguageModel]) -> None:
        self.named = {info.name: model for info, model in models.items()}
        self.default = next(info.name for info in models if info.is_default)

    def close(self) -> None:
        for model in self.named.values():
            if isinstance(model, Closable):
                model.close()


@asynccontextmanager
async def loaded(folder: Path, llm: str = "auto") -> AsyncIterator[Loaded]:
    with ExitStack() as opened:
        made = await asyncio.to_thread(loader._language_models, ModelStore(folder, ()), llm, opened, 2)
        opened.pop_all()
    models = Loaded(made)
    try:
        yield models
    finally:
        await asyncio.to_thread(models.close)


async def answer_of(model: LanguageModel) -> list[LlmOutput]:
    return [part async for part in model.respond(PROMPT)]


def left_out(logs: list[Any]) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == "model.left_out"]


def children() -> set[int]:
    """Processes that this one has started and not waited for."""
    pids: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread has ended
            pids.update(map(int, (task / "children").read_text().split()))
    return pids


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_next_model_answers_and_one_line_says_why(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    broken(monkeypatch, tmp_path, fault)
    before = children()
    with capture_logs() as logs:
        async with loaded(folder) as models:
            assert models.default == "b-second"
            assert any(isinstance(part, TextDelta) for part in await answer_of(models.named["b-second"]))
    [line] = left_out(logs)
    told = fault if fault.startswith(("SIG", "time", "status")) else "no result"
    assert (line["name"], line["kind"], line["log_level"], line["fault"]) == ("a-first", "llm", "error", told)
    assert line["file"] == str(folder / "a-first.gguf") and line["file"] in line["error"]
    assert line["error"].endswith(REMEDIES.get(fault, OTHER_REMEDY)) and "\n" not in line["error"]
    assert children() == before
    assert not [line for line in logs if line["event"] == "model.missing"]


@pytest.mark.parametrize(("fault", "again"), [("SIGSEGV", False), ("time limit", False), ("SIGKILL", True)])
def test_a_failure_is_noted_for_a_day_unless_it_may_be_the_machines(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, again: bool
) -> None:
    candidate = gguf_candidate(folder / "a-first.gguf", "a-first")
    with monkeypatch.context() as patch:
        broken(patch, tmp_path, fault)
        with pytest.raises(ModelTrialError) as first:
            ModelTrials(folder).require(candidate)
    if again:
        assert ModelTrials(folder).require(candidate) == {"tokens": 64}
        return
    with pytest.raises(ModelTrialError) as second:
        ModelTrials(folder).require(candidate)
    assert (second.value.message, second.value.fault) == (first.value.message, first.value.fault)
    monkeypatch.setattr(trial, "FAILURE_KEPT_S", 0.0)
    assert ModelTrials(folder).require(candidate) == {"tokens": 64}


async def test_where_a_setting_names_a_model_that_fails_the_responder_answers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, tmp_path, "SIGSEGV")
    with capture_logs() as logs:
        async with loaded(folder, "a-first") as models:
            assert models.default == "extractive-responder"
            assert await answer_of(models.named[models.default]) == [TextDelta("The kitchen opens at seven.")]
    assert [line["fault"] for line in left_out(logs)] == ["SIGSEGV"]


async def test_a_model_that_a_call_needs_is_tried_first_and_left_to_the_responder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, tmp_path, "SIGSEGV")
    async with loaded(folder, "extractive-responder") as models:
        first = models.named["a-first"]
        with capture_logs() as logs:
            assert await answer_of(first) == [TextDelta("The kitchen opens at seven.")]
            assert await answer_of(first) == [TextDelta("The kitchen opens at seven.")]
    assert [line["fault"] for line in left_out(logs)] == ["SIGSEGV"]


async def test_a_server_that_ends_waits_for_no_trial(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, tmp_path, "time limit", 600.0)
    before = children()
    async with loaded(folder, "extractive-responder") as models:
        asked = asyncio.create_task(answer_of(models.named["a-first"]))
        await asyncio.to_thread(_when, lambda: children() != before)
        await asyncio.to_thread(models.close)
        async with asyncio.timeout(10):
            assert await asked == [TextDelta("The kitchen opens at seven.")]
    assert children() == before


async def test_a_file_that_ends_whoever_looks_at_it_does_not_end_the_start(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the API lists of models that are not loaded is read from their files in another process too."""
    (folder / ".tried/a-first.header").unlink()
    broken(monkeypatch, tmp_path, "SIGSEGV")
    with capture_logs() as logs:
        async with loaded(folder, "b-second") as models:
            assert list(models.named) == ["b-second", "extractive-responder"]
    assert [line["fault"] for line in left_out(logs)] == ["SIGSEGV"]
    with capture_logs() as logs:
        async with loaded(folder, "a-first") as models:
            assert list(models.named) == ["extractive-responder", "b-second"]
    assert [line["fault"] for line in left_out(logs)] == ["SIGSEGV"], "told once, whoever looks at it"
    (folder / ".tried/a-first.header").unlink()
    monkeypatch.undo()
    path = folder / "a-first.gguf"
    await asyncio.to_thread(lambda: ModelTrials(folder).require(header_candidate(path, "a-first")))


def figures(value: float) -> Callable[..., Any]:
    """Weights of which the last are all alike."""
    weights = tiny_gguf._weights
    return lambda *given: weights(*given) | {
        "output.weight": np.full_like(weights(*given)["output.weight"], value)
    }  # fmt: skip


@pytest.mark.parametrize(("value", "what"), [(np.nan, "no numbers"), (0.0, "the same figure for every token")])
def test_a_model_that_runs_and_says_nothing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, what: str
) -> None:
    monkeypatch.setattr(tiny_gguf, "_weights", figures(value))
    path = write_tiny_gguf(tmp_path / "mute.gguf")
    with pytest.raises(ModelTrialError, match=what) as failed:
        ModelTrials(tmp_path).require(gguf_candidate(path, "mute"))
    assert failed.value.fault == "no result"


def test_what_passed_is_tried_again_when_file_library_or_processor_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_gguf(tmp_path / "harbour.gguf")
    results = iter(range(100))
    monkeypatch.setattr(ModelTrials, "_run_trial", lambda *_: {"trial": next(results)})
    known: set[Any] = set()

    def tried() -> bool:
        """Whether a trial was made, and not one of before remembered."""
        result = ModelTrials(tmp_path).require(gguf_candidate(path, "harbour"))["trial"]
        is_new = result not in known
        known.add(result)
        return is_new

    assert (tried(), tried()) == (True, False)
    note = tmp_path / ".tried/harbour.json"
    assert note.parent.stat().st_mode & 0o77 == 0
    os.utime(path, ns=(1, 1))
    assert (tried(), tried()) == (True, False)
    monkeypatch.setattr(trial, "version", lambda _: "9.9")
    assert (tried(), tried()) == (True, False)
    monkeypatch.setattr(trial, "cpu_kind", lambda: "x86_64 of another kind")
    assert (tried(), tried()) == (True, False)
    built_anew = tmp_path / "libggml.so"
    for content in (b"", b"of the same version"):
        built_anew.write_bytes(content)
        monkeypatch.setattr("models.llm.llama.trial._library", lambda: (built_anew,))
        assert (tried(), tried()) == (True, False)
    note.write_text("{}")
    assert (tried(), tried()) == (True, False)
    ModelTrials(tmp_path).forget("harbour")
    assert (tried(), tried()) == (True, False)


def test_a_trial_that_cannot_be_noted_is_made_again(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "harbour.gguf")
    (tmp_path / ".tried").write_text("in the way")
    with capture_logs() as logs:
        assert ModelTrials(tmp_path).require(gguf_candidate(path, "harbour")) == {"tokens": 64}
    assert [line["model"] for line in logs if line["event"] == "model.trial_not_noted"] == ["harbour"]


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_0", "Q4_K"])
def test_a_file_of_each_kind_of_weights_passes(tmp_path: Path, kind: str) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", kind=GGMLQuantizationType[kind], shape=WIDE)
    assert ModelTrials(tmp_path).require(gguf_candidate(path, "tiny")) == {"tokens": 64}


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"gone cannot be read: No such file or directory: .*gone\.gguf"):
        ModelTrials(tmp_path).require(TrialCandidate("gone", "llama.cpp", {}, (tmp_path / "gone.gguf",), ()))


def test_a_trial_gets_none_of_the_servers_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRUNKLINE_API__KEY", "secret")
    given = trial._environment(TrialCandidate("any", "llama.cpp", {}, (tmp_path,), ()))
    assert "secret" not in given.values() and given["PATH"] == os.environ["PATH"]


def test_all_parts_of_a_model_in_several_files_are_looked_at(tmp_path: Path) -> None:
    parts = [tmp_path / f"large-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for part in parts:
        part.write_bytes(b"GGUF")
    assert gguf_candidate(parts[0], "large").files == header_candidate(parts[0], "large").files == tuple(parts)
    first = gguf_candidate(parts[0], "large").stamp()
    parts[2].write_bytes(b"GGUF2")
    assert gguf_candidate(parts[0], "large").stamp() != first


ORPHAN = """
import sys
from pathlib import Path
from models.llm.llama.trial import gguf_candidate
from models.model_files.trial import ModelTrials
path = Path(sys.argv[1])
ModelTrials(path.parent).require(gguf_candidate(path, path.stem))
"""


def test_a_trial_leaves_no_core_takes_no_more_than_it_needs_and_ends_with_a_server_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.move(write_tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "a-first.gguf")
    break_trials(monkeypatch, tmp_path / "path", {"a-first": "time limit"})
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    server = subprocess.Popen([sys.executable, "-P", "-c", ORPHAN, str(path)], env=environment)
    try:
        tried = _when(lambda: _confined_child(server.pid))
        assert Path(f"/proc/{tried}/oom_score_adj").read_text() == "1000\n"
        _when(lambda: 0 < resource.prlimit(tried, resource.RLIMIT_DATA)[0] < 5 << 30)  # -1: no limit
    finally:
        server.kill()
        server.wait()
    _when(lambda: not _lives(tried))


def _confined_child(parent: int) -> int | None:
    """The process that a process has started, once it may leave no core."""
    for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with suppress(ProcessLookupError):
            if resource.prlimit(int(each), resource.RLIMIT_CORE) == (0, 0):
                return int(each)
    return None


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _when(ask: Callable[[], Any]) -> Any:
    """What is so within some seconds."""
    until = time.monotonic() + 30
    while not (found := ask()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found
