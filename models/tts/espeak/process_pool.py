"""A pool of espeak-ng worker processes (`models.tts.espeak.worker_process`) for all calls, each for one sentence at a
time. A text that crashes a process fails that sentence alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, cast

import numpy as np
import structlog

from config import background_process
from config.errors import ModelError, StartupError
from media.audio_port import Samples
from models.tts.espeak.worker_process import LENGTHS, SONAME

_REMEDY: Final = "install the Debian package libespeak-ng1"
_SCRIPT: Final = Path(__file__).with_name("worker_process.py")
_MAX_ATTEMPTS: Final = 2
"""A process that was killed is replaced."""
_UNENCODABLE: Final = dict.fromkeys(range(0xD800, 0xE000), "\ufffd") | {0: " "}
"""Surrogates have no UTF-8, and a NUL ends the text."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class EspeakSpeech:
    """Mono int16 at `rate` Hz, and its words in the order of speech: the index of the first character and the sample
    after the last sound."""

    samples: Samples
    rate: int
    words: Sequence[tuple[int, int]]


class _ProcessEnded(Exception):
    """The process has ended."""


class ProcessPool:
    """For any thread, which waits for a free process."""

    def __init__(self, count: int, *arguments: str, remedy: str) -> None:
        """`arguments` are the script's. One process is started now, up to `count` on demand. Takes 0.1 s. Raises
        `StartupError`, whose text ends with the remedy."""
        self._arguments, self._remedy = arguments, remedy
        self._lock = threading.Lock()
        self._closed = False
        self._live: set[_Process] = set()
        first = self._start()
        self.greeting: Final = first.greeting
        """The script's report of what it has loaded."""
        self._free: SimpleQueue[_Process | None] = SimpleQueue()
        self._free.put(first)
        for _ in range(count - 1):
            self._free.put(None)

    def close(self) -> None:
        """Kill the processes; requests in progress fail. Idempotent."""
        with self._lock:
            self._closed = True
            live, self._live = self._live, set()
        for process in live:
            process.kill()

    def request(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Send a request with any "text" and wait for its response. Raises `ModelError`."""
        request = {**request, "text": request["text"].translate(_UNENCODABLE)}
        process: _Process | None = self._free.get()
        try:
            for _ in range(_MAX_ATTEMPTS):
                process = process or self._start()
                try:
                    header, body = process.request(request)
                except _ProcessEnded:
                    self._remove(process)
                    process = None
                else:
                    break
            else:
                raise ModelError("espeak-ng crashed twice over a sentence")
        except StartupError as error:
            raise ModelError(error.message) from error
        finally:
            self._free.put(process)
        if "error" in header:
            raise ModelError(header["error"])
        return header, body

    def _start(self) -> _Process:
        process = _Process(self._arguments, self._remedy)
        with self._lock:
            if not self._closed:
                self._live.add(process)
                return process
        process.kill()
        raise ModelError("espeak-ng is closed")

    def _remove(self, process: _Process) -> None:
        """Remove a process that has ended."""
        with self._lock:
            known = process in self._live
            self._live.discard(process)
        if known:
            _log.warning("espeak.process_ended", status=process.kill())


class EspeakPool:
    """The distribution's espeak-ng library, as a synthesizer. Any thread may use it."""

    def __init__(self, count: int, library: str = SONAME) -> None:
        """See `ProcessPool`. Raises `StartupError`."""
        self._processes = ProcessPool(count, "speak", library, remedy=_REMEDY)
        self.rate: Final = int(self._processes.greeting["rate"])
        """Of its voices, in Hz."""
        self.languages: Final = tuple(self._processes.greeting["languages"])
        """The language tags of its voices, in its order."""

    def speak(self, text: str, language: str, words_per_minute: int, pitch_range: float = 1.0) -> EspeakSpeech:
        """Synthesize a text; `pitch_range` is the share of the voice's own pitch movement. Raises `ModelError`."""
        request = {
            "text": text, "language": language, "words_per_minute": words_per_minute, "pitch_range": pitch_range
        }  # fmt: skip
        header, body = self._processes.request(request)
        words = [(int(start), int(end)) for start, end in header["words"]]
        return EspeakSpeech(np.frombuffer(body, "<i2").astype(np.int16), self.rate, words)

    def close(self) -> None:
        """Kill the processes; texts in progress fail. Idempotent."""
        self._processes.close()


class _Process:
    """One process, for one thread at a time."""

    def __init__(self, arguments: Sequence[str], remedy: str) -> None:
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        command = [sys.executable, "-I", "-S", str(_SCRIPT), *arguments]
        try:
            # A session of its own: a fork that works on a sentence is killed with it.
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=null, start_new_session=True,
                env=background_process.environment(),
            )  # fmt: skip
            self.greeting, _ = self._read_response()
        except (OSError, _ProcessEnded) as error:
            raise StartupError(f"{arguments[-1]} cannot be used ({error}): {remedy}") from error
        if "error" in self.greeting:
            self.kill()
            raise StartupError(f"{self.greeting['error']}: {remedy}")

    def request(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Send a request and wait for its response. Raises `_ProcessEnded`."""
        encoded = json.dumps(request).encode()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(LENGTHS.pack(len(encoded), 0) + encoded)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:  # ValueError: `kill` has closed it
            raise _ProcessEnded from error
        return self._read_response()

    def kill(self) -> int:
        """Kill the process; returns its exit status."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):  # The last request was not read.
            self._process.stdin.close()
        self._process.stdout.close()
        return status

    def _read_response(self) -> tuple[dict[str, Any], bytes]:
        header, body = LENGTHS.unpack(self._read(LENGTHS.size))
        return cast("dict[str, Any]", json.loads(self._read(header))), self._read(body)

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        try:
            content = self._process.stdout.read(count)
        except (OSError, ValueError) as error:
            raise _ProcessEnded from error
        if len(content) < count:
            raise _ProcessEnded("it has ended")
        return content
