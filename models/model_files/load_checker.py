"""Load checks: loads a model in a subprocess before the server does, because a fault in a file, in its library or in
compiled code may kill the process by a signal or `exit`, or hang it. If a model fails, the next one is used.

Results are stored in `.tried` in `[models] dir` and reused until the files, the library or the processor change. The
subprocess runs `models.loading.load_check_process`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog

from config import background_process
from config.errors import LoadCheckError, StartupError
from models.model_files.store import write_atomically
from models.runtime.cpu_memory_limits import cpu_fingerprint

TIME_LIMIT_S: Final = 120.0
"""Seconds of a load check, plus the time to read the files from a slow disk."""
MIN_DISK_BYTES_PER_S: Final = 50_000_000
"""Bytes per second of a slow disk."""
FAILURE_MAX_AGE_S: Final = 24 * 3600.0
"""Seconds for which a stored failure is reused."""
RESULTS_DIRECTORY: Final = ".tried"
"""Folder of the stored results in `[models] dir`."""
_EXTRA_MEMORY_BYTES: Final = 4 << 30
"""Bytes of memory beside three times the size of the files: libraries, stacks, repacked weights."""
_MAX_OUTPUT: Final = 4096
"""Bytes at the end of the process's output that are read."""
_RETRY_ADVICE: Final = "choose another model or another file of it; `trunkline models verify {name}` repeats the check"
_REMEDIES: Final = {
    "SIGKILL": "most likely for want of memory: choose a smaller model, or give this server more",
    "time limit": "choose a smaller model; `trunkline models verify {name}` repeats the check",
}

_log = structlog.get_logger()


class NoModelOutput(Exception):
    """Raised by an engine's check if the model runs without usable output; the text continues "its load check"."""


@dataclass(frozen=True)
class LoadCheckCandidate:
    """A model to check. `engine`: its check (`models.loading.load_check_process.ENGINES`), which gets `recipe` as JSON.
    The result is valid for these `files`, `packages` and `library` files, and for the values of the recipe that
    `result_depends_on` names."""

    name: str
    engine: str
    recipe: Mapping[str, Any]
    files: tuple[Path, ...]
    packages: tuple[str, ...]
    library: tuple[Path, ...] = ()
    result_depends_on: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    result_file: str = ""
    """Name of the result file, by default the model's with `.json`."""

    @property
    def result_name(self) -> str:
        """The name of the result file in `.tried`."""
        return self.result_file or f"{self.name}.json"

    def fingerprint(self) -> dict[str, Any]:
        """What a result is valid for. Raises `OSError` if a file is missing."""
        return {
            "engine": self.engine,
            "packages": {name: version(name) for name in self.packages},
            "library": {path.name: _file_fingerprint(path) for path in self.library},
            "processor": cpu_fingerprint(),
            "files": {path.name: _file_fingerprint(path) for path in self.files},
            "recipe": {name: self.recipe[name] for name in self.result_depends_on},
        }


class LoadChecker:
    """Runs the load checks of the models in one folder. Any thread."""

    def __init__(self, directory: Path) -> None:
        """`directory`: `[models] dir`."""
        self._results_directory = directory / RESULTS_DIRECTORY
        self._lock = threading.Lock()
        self._process_groups: set[int] = set()
        self._stopped = False
        self.failure: LoadCheckError | None = None
        """The last failure."""

    def require(self, candidate: LoadCheckCandidate) -> Mapping[str, Any]:
        """Check a model, unless its result is stored. Returns the check's values by name. Takes seconds. Raises
        `LoadCheckError` if the process crashed, timed out or had no output, and `StartupError` if the engine rejects
        the model; both with cause and remedy in one line."""
        try:
            return self._stored_or_new_result(candidate)
        except LoadCheckError as error:
            self.failure = error
            raise

    def _stored_or_new_result(self, candidate: LoadCheckCandidate) -> Mapping[str, Any]:
        """The stored result, or that of a new check."""
        try:
            fingerprint = candidate.fingerprint()
        except OSError as error:
            raise StartupError(
                f"The model {candidate.name} cannot be read: {error.strerror}: {error.filename}"
            ) from error
        result = self._stored_result(candidate, fingerprint)
        if "passed" in result:
            return dict(result["passed"])
        if "failed" in result and 0 <= time.time() - result["at"] < FAILURE_MAX_AGE_S:
            raise LoadCheckError(candidate.name, str(candidate.files[0]), result["fault"], result["failed"])
        started = time.monotonic()
        try:
            values = self._run_check(candidate)
        except LoadCheckError as error:
            if error.fault != "SIGKILL":
                self._store_result(
                    candidate, fingerprint, {"failed": error.message, "fault": error.fault, "at": time.time()}
                )
            raise
        _log.info("model.tried", name=candidate.name, seconds=round(time.monotonic() - started, 2))
        self._store_result(candidate, fingerprint, {"passed": values})
        return values

    def delete_results(self, candidate_name: str) -> None:
        """Delete a model's stored results."""
        for result in (f"{candidate_name}.json", f"{candidate_name}.header"):
            with suppress(OSError):
                (self._results_directory / result).unlink()

    def stop(self) -> None:
        """Kill running checks and start no others: `require` raises `StartupError`. Idempotent."""
        with self._lock:
            self._stopped = True
            for group in self._process_groups:
                _kill(group)

    def _run_check(self, candidate: LoadCheckCandidate) -> Mapping[str, Any]:
        """Run the check's process, and evaluate its result."""
        size = sum(path.stat().st_size for path in candidate.files)
        limit_s = time_limit_s(candidate, size)
        request = {"recipe": candidate.recipe, "memory_bytes": 3 * size + _EXTRA_MEMORY_BYTES, "parent": os.getpid()}
        result_fd, stderr_fd = os.memfd_create("answer"), os.memfd_create("told")
        try:
            status = self._run_process(candidate, json.dumps(request), limit_s, result_fd, stderr_fd)
            return _verdict(candidate, status, _tail_text(result_fd), _tail_text(stderr_fd), limit_s)
        finally:
            os.close(result_fd)
            os.close(stderr_fd)

    def _run_process(
        self, candidate: LoadCheckCandidate, request: str, limit_s: float, result_fd: int, stderr_fd: int
    ) -> int | None:
        """The exit status of the process; None after the time limit. Kills its process group."""
        with self._lock:
            if self._stopped:
                raise StartupError(f"the model {candidate.name} is not checked: the server ends")
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "models.loading.load_check_process", candidate.engine, candidate.name],
                stdin=subprocess.PIPE, stdout=result_fd, stderr=stderr_fd, text=True, start_new_session=True,
                env=_environment(candidate),
            )  # fmt: skip
            self._process_groups.add(process.pid)
        try:
            process.communicate(request, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with self._lock:
                self._process_groups.discard(process.pid)
                _kill(process.pid)
            process.wait()
        if self._stopped:
            raise StartupError(f"the load check of the model {candidate.name} was stopped: the server ends")
        return process.returncode

    def _stored_result(self, candidate: LoadCheckCandidate, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
        """The stored result; empty if there is none, or if something has changed."""
        try:
            result = json.loads((self._results_directory / candidate.result_name).read_text())
            known = result["passed"] if "passed" in result else (result["failed"], result["fault"], float(result["at"]))
            return result if result["stamp"] == fingerprint and known is not None else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _store_result(
        self, candidate: LoadCheckCandidate, fingerprint: Mapping[str, Any], result: Mapping[str, Any]
    ) -> None:
        try:
            self._results_directory.mkdir(mode=0o700, exist_ok=True)
            write_atomically(
                self._results_directory / candidate.result_name, json.dumps({"stamp": fingerprint, **result}).encode()
            )
        except OSError as error:
            # The event of recognizers has its own name, because it is the older one.
            event = "stt.trial_not_noted" if candidate.engine == "sherpa-onnx" else "model.trial_not_noted"
            _log.info(event, model=candidate.name, error=str(error))


@dataclass(frozen=True)
class StoredCheck:
    """The stored result of a load check: the values of one that has passed, or why it has failed."""

    passed: Mapping[str, Any] | None
    failed: str | None = None


def stored_check(directory: Path, name: str, files: Collection[Path]) -> StoredCheck | None:
    """The stored result of a model's load check for these files, without regard to the engine's version; None if there
    is none, or the files have changed. `directory`: `[models] dir`."""
    try:
        result = json.loads((directory / RESULTS_DIRECTORY / f"{name}.json").read_text())
        if result["stamp"]["files"] != {path.name: _file_fingerprint(path) for path in files}:
            return None
        return StoredCheck(dict(result["passed"])) if "passed" in result else StoredCheck(None, str(result["failed"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def time_limit_s(_candidate: LoadCheckCandidate, size: int) -> float:
    """Time limit in seconds for files of `size` bytes."""
    return TIME_LIMIT_S + size / MIN_DISK_BYTES_PER_S


def log_left_out(kind: str, error: LoadCheckError) -> None:
    """Log a model that failed its load check, once per error."""
    if error.is_logged:
        return
    error.is_logged = True
    _log.error("model.left_out", name=error.model, kind=kind, file=error.file, fault=error.fault, error=error.message)


def _verdict(
    candidate: LoadCheckCandidate, status: int | None, result_fd: str, stderr_fd: str, limit_s: float
) -> Mapping[str, Any]:
    """The values of a check. Raises as `LoadChecker.require`."""
    if status is None:
        _raise_failed(candidate, "time limit", f"did not come to an end within {limit_s:.0f} s")
    if status < 0:
        name = _signal_name(-status)
        _raise_failed(candidate, name, f"was ended by {name}{_last_line(stderr_fd)}")
    if status > 0:
        _raise_failed(candidate, f"status {status}", f"ended with status {status}{_last_line(stderr_fd)}")
    try:
        result = json.loads(result_fd)
        [(verdict, values)] = result.items()
    except (ValueError, AttributeError):
        _raise_failed(candidate, "no result", "ended without a result" + (" that can be read" if result_fd else ""))
    match verdict, values:
        case "passed", dict():
            return values
        case "silent", str():
            _raise_failed(candidate, "no result", values)
        case "refused", str():
            raise StartupError(values)
    _raise_failed(candidate, "no result", "ended without a result that can be read")


def _raise_failed(candidate: LoadCheckCandidate, fault: str, happened: str) -> NoReturn:
    file = str(candidate.files[0])
    remedy = _REMEDIES.get(fault, _RETRY_ADVICE).format(name=candidate.name)
    message = f"the model {candidate.name} ({file}) is left out: its load check {happened}: {remedy}"
    raise LoadCheckError(candidate.name, file, fault, message)


def _last_line(stderr_fd: str) -> str:
    """The last line of the process's standard error."""
    lines = [line.strip() for line in stderr_fd.splitlines() if line.strip()]
    return f" ({lines[-1][-300:]})" if lines else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tail_text(file: int) -> str:
    end = os.fstat(file).st_size
    return os.pread(file, _MAX_OUTPUT, max(0, end - _MAX_OUTPUT)).decode(errors="replace")


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _environment(candidate: LoadCheckCandidate) -> dict[str, str]:
    """The environment without settings, which may hold secrets. llama.cpp would start a debugger on failure, and
    OpenBLAS a thread for each core."""
    environment = background_process.environment_without_secrets()
    path = os.pathsep.join(filter(None, sys.path))
    environment |= {"PYTHONPATH": path, "GGML_NO_BACKTRACE": "1", "OPENBLAS_NUM_THREADS": "1"}
    return environment | dict(candidate.environment)


def _file_fingerprint(path: Path) -> list[int]:
    """Size and times of a file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
