"""A model's files are tried in a process of their own before this process loads them: a fault in a file, in the library
that runs it or in what that makes of the processor may end whoever loads it, by a signal, by `exit` or by never coming
back. A model that fails is left out, and the next one answers.

What passed is noted in `.tried` in the folder of all models, and not tried again until its files, its library or the
processor change. `models.loading.trial_process` is what runs in that process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog

from config.errors import ModelTrialError, StartupError
from models.model_files.store import write_whole
from models.runtime.machine import cpu_kind

LIMIT_S: Final = 120.0
"""For a trial; a file that must be read from a slow disk gets more."""
SLOWEST_DISK: Final = 50_000_000
"""Bytes that are read in a second."""
FAILURE_KEPT_S: Final = 24 * 3600.0
"""A model that ended its trial is not tried again at each start."""
RESULTS_FOLDER: Final = ".tried"
"""In the folder of all models: what passed, and what did not of late."""
_ROOM: Final = 4 << 30
"""Memory that a trial may take beside three times the size of its files: libraries, stacks, weights put in order."""
_MAX_OUTPUT: Final = 4096
"""Bytes of the end of what the process said that are looked at."""
_AGAIN: Final = "choose another model or another file of it; `trunkline models verify {name}` tries it again"
_REMEDIES: Final = {
    "SIGKILL": "most likely for want of memory: choose a smaller model, or give this server more",
    "time limit": "choose a smaller model; `trunkline models verify {name}` tries it again",
}

_log = structlog.get_logger()


class NoOutput(Exception):
    """What an engine's trial raises of a model that runs and gives nothing; the text goes on from "its trial"."""


@dataclass(frozen=True)
class TrialCandidate:
    """A model that is to be loaded. `engine` names what tries it (`models.loading.trial_process.ENGINES`) with
    `recipe`, which becomes JSON; `lasting` is the part of the recipe that another result may depend on. The result
    holds for these `files`, for the `packages`, and for the files of the `library`."""

    name: str
    engine: str
    recipe: Mapping[str, Any]
    files: tuple[Path, ...]
    packages: tuple[str, ...]
    library: tuple[Path, ...] = ()
    lasting: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    """The name of the note, by default that of the model with `.json`."""

    @property
    def note_name(self) -> str:
        """The file in `.tried`."""
        return self.note or f"{self.name}.json"

    def stamp(self) -> dict[str, Any]:
        """What a result holds for. Raises `OSError` when a file is not there."""
        return {
            "engine": self.engine,
            "packages": {name: version(name) for name in self.packages},
            "library": {path.name: _file_stamp(path) for path in self.library},
            "processor": cpu_kind(),
            "files": {path.name: _file_stamp(path) for path in self.files},
            "recipe": {name: self.recipe[name] for name in self.lasting},
        }


class ModelTrials:
    """Tries models of one folder, one after the other. Any thread."""

    def __init__(self, directory: Path) -> None:
        """`directory` is the folder of all models."""
        self._notes = directory / RESULTS_FOLDER
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._stopped = False
        self.failure: ModelTrialError | None = None
        """The last one."""

    def require(self, candidate: TrialCandidate) -> Mapping[str, Any]:
        """Try a model, unless just this has passed before: what its trial found, by names. Takes seconds. Raises
        `ModelTrialError` for one that its process did not survive, that did not come to an end or gave nothing; and
        `StartupError` for one that the engine refuses. Both are one line with the cause and the remedy."""
        try:
            return self._result(candidate)
        except ModelTrialError as error:
            self.failure = error
            raise

    def _result(self, candidate: TrialCandidate) -> Mapping[str, Any]:
        """As it was noted, or of a trial that is made now."""
        try:
            stamp = candidate.stamp()
        except OSError as error:
            raise StartupError(
                f"The model {candidate.name} cannot be read: {error.strerror}: {error.filename}"
            ) from error
        note = self._stored_result(candidate, stamp)
        if "passed" in note:
            return dict(note["passed"])
        if "failed" in note and 0 <= time.time() - note["at"] < FAILURE_KEPT_S:
            raise ModelTrialError(candidate.name, str(candidate.files[0]), note["fault"], note["failed"])
        began = time.monotonic()
        try:
            found = self._run_trial(candidate)
        except ModelTrialError as error:
            if error.fault != "SIGKILL":
                self._store_result(candidate, stamp, {"failed": error.message, "fault": error.fault, "at": time.time()})
            raise
        _log.info("model.tried", name=candidate.name, seconds=round(time.monotonic() - began, 2))
        self._store_result(candidate, stamp, {"passed": found})
        return found

    def forget(self, candidate_name: str) -> None:
        """Have a model tried again the next time."""
        for note in (f"{candidate_name}.json", f"{candidate_name}.header"):
            with suppress(OSError):
                (self._notes / note).unlink()

    def stop(self) -> None:
        """End the trials that run, and make no others: `require` raises `StartupError`. Idempotent."""
        with self._lock:
            self._stopped = True
            for group in self._running:
                _kill(group)

    def _run_trial(self, candidate: TrialCandidate) -> Mapping[str, Any]:
        """Run the process, and judge what came of it."""
        size = sum(path.stat().st_size for path in candidate.files)
        limit_s = time_limit_s(candidate, size)
        given = {"recipe": candidate.recipe, "memory_bytes": 3 * size + _ROOM, "parent": os.getpid()}
        answer, told = os.memfd_create("answer"), os.memfd_create("told")
        try:
            status = self._run(candidate, json.dumps(given), limit_s, answer, told)
            return _verdict(candidate, status, _tail(answer), _tail(told), limit_s)
        finally:
            os.close(answer)
            os.close(told)

    def _run(self, candidate: TrialCandidate, given: str, limit_s: float, answer: int, told: int) -> int | None:
        """The status that the process ended with; None when it did not within the limit. Nothing of it goes on."""
        with self._lock:
            if self._stopped:
                raise StartupError(f"the model {candidate.name} is not tried any more: the server ends")
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "models.loading.trial_process", candidate.engine, candidate.name],
                stdin=subprocess.PIPE, stdout=answer, stderr=told, text=True, start_new_session=True,
                env=_environment(candidate),
            )  # fmt: skip
            self._running.add(process.pid)
        try:
            process.communicate(given, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with self._lock:
                self._running.discard(process.pid)
                _kill(process.pid)
            process.wait()
        if self._stopped:
            raise StartupError(f"the trial of the model {candidate.name} was given up: the server ends")
        return process.returncode

    def _stored_result(self, candidate: TrialCandidate, stamp: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of just this; nothing when it was never tried, or something has changed."""
        try:
            note = json.loads((self._notes / candidate.note_name).read_text())
            known = note["passed"] if "passed" in note else (note["failed"], note["fault"], float(note["at"]))
            return note if note["stamp"] == stamp and known is not None else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _store_result(self, candidate: TrialCandidate, stamp: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        try:
            self._notes.mkdir(mode=0o700, exist_ok=True)
            write_whole(self._notes / candidate.note_name, json.dumps({"stamp": stamp, **result}).encode())
        except OSError as error:
            # Recognizers were the first to be tried, and the line of their trials keeps its name.
            event = "stt.trial_not_noted" if candidate.engine == "sherpa-onnx" else "model.trial_not_noted"
            _log.info(event, model=candidate.name, error=str(error))


def time_limit_s(_candidate: TrialCandidate, size: int) -> float:
    """Seconds for a trial of files of so many bytes."""
    return LIMIT_S + size / SLOWEST_DISK


def log_left_out(kind: str, error: ModelTrialError) -> None:
    """One line in the log for a model that failed its trial, whoever else hears of it."""
    if error.told:
        return
    error.told = True
    _log.error("model.left_out", name=error.model, kind=kind, file=error.file, fault=error.fault, error=error.message)


def _verdict(
    candidate: TrialCandidate, status: int | None, answer: str, told: str, limit_s: float
) -> Mapping[str, Any]:
    """What a trial found. Raises what `ModelTrials.require` does."""
    if status is None:
        _fail(candidate, "time limit", f"did not come to an end within {limit_s:.0f} s")
    if status < 0:
        name = _signal_name(-status)
        _fail(candidate, name, f"was ended by {name}{_last_line(told)}")
    if status > 0:
        _fail(candidate, f"status {status}", f"ended with status {status}{_last_line(told)}")
    try:
        result = json.loads(answer)
        [(verdict, found)] = result.items()
    except (ValueError, AttributeError):
        _fail(candidate, "no result", "ended without a result" + (" that can be read" if answer else ""))
    match verdict, found:
        case "passed", dict():
            return found
        case "silent", str():
            _fail(candidate, "no result", found)
        case "refused", str():
            raise StartupError(found)
    _fail(candidate, "no result", "ended without a result that can be read")


def _fail(candidate: TrialCandidate, fault: str, what: str) -> NoReturn:
    file = str(candidate.files[0])
    remedy = _REMEDIES.get(fault, _AGAIN).format(name=candidate.name)
    message = f"the model {candidate.name} ({file}) is left out: its trial {what}: {remedy}"
    raise ModelTrialError(candidate.name, file, fault, message)


def _last_line(told: str) -> str:
    """The last line that a library wrote before it ended the process."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return f" ({lines[-1][-300:]})" if lines else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tail(file: int) -> str:
    end = os.fstat(file).st_size
    return os.pread(file, _MAX_OUTPUT, max(0, end - _MAX_OUTPUT)).decode(errors="replace")


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _environment(candidate: TrialCandidate) -> dict[str, str]:
    """Ours without our settings, which may hold secrets. llama.cpp would start a debugger when it fails, and linear
    algebra a thread with memory of its own for each core."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRUNKLINE_")}
    path = os.pathsep.join(filter(None, sys.path))
    kept |= {"PYTHONPATH": path, "GGML_NO_BACKTRACE": "1", "OPENBLAS_NUM_THREADS": "1"}
    return kept | dict(candidate.environment)


def _file_stamp(path: Path) -> list[int]:
    """What differs when a file is another one."""
    there = path.stat()
    return [there.st_size, there.st_mtime_ns, there.st_ctime_ns]
