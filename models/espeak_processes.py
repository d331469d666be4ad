"""espeak-ng's library for all calls: a few processes that stay (`models.espeak_speaker`), each for one sentence at a
time. A text that breaks it costs that sentence alone.
"""

from __future__ import annotations

import json
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

from config.errors import ModelError, StartupError
from media.ports import Samples
from models.espeak_speaker import LENGTHS, SONAME

_REMEDY: Final = "install the Debian package libespeak-ng1"
_SCRIPT: Final = Path(__file__).with_name("espeak_speaker.py")
_TRIES: Final = 2
"""A process that was killed is replaced."""
_UNSAYABLE: Final = dict.fromkeys(range(0xD800, 0xE000), "\ufffd") | {0: " "}
"""Surrogates have no UTF-8, and a NUL ends the text."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class Utterance:
    """Mono int16 at `rate` Hz, and its words in the order in which they are heard: the index of the first character
    and the sample behind the last sound."""

    samples: Samples
    rate: int
    words: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Clause:
    """Phonemes in IPA, and the text that they were read from, which ends with the clause's punctuation, white space
    and perhaps a character of the next clause."""

    phonemes: str
    read: str


class _Broken(Exception):
    """The process has ended."""


class EspeakProcesses:
    """Any thread may use it; it waits for a process that is free."""

    def __init__(self, count: int, library: str = SONAME) -> None:
        """One process is started now, up to `count` when they are needed. Takes 0.1 s. Raises `StartupError`."""
        self._library = library
        self._lock = threading.Lock()
        self._closed = False
        self._live: set[_Process] = set()
        first = self._start()
        self.languages: Final = tuple(first.languages)
        """The language tags that it speaks, in its order."""
        self._free: SimpleQueue[_Process | None] = SimpleQueue()
        self._free.put(first)
        for _ in range(count - 1):
            self._free.put(None)

    def speak(self, text: str, language: str, words_per_minute: int, pitch_range: float = 1.0) -> Utterance:
        """Speak a text; `pitch_range` is the share of the voice's own pitch movement. Raises `ModelError`."""
        request = {
            "do": "speak", "text": text.translate(_UNSAYABLE), "language": language,
            "words_per_minute": words_per_minute, "pitch_range": pitch_range,
        }  # fmt: skip
        header, body, rate = self._ask(request)
        words = [(int(start), int(end)) for start, end in header["words"]]
        return Utterance(np.frombuffer(body, "<i2").astype(np.int16), rate, words)

    def phonemes(self, text: str, language: str) -> list[Clause]:
        """What the clauses of a text are pronounced like. Raises `ModelError`."""
        header, _, _ = self._ask({"do": "phonemes", "text": text.translate(_UNSAYABLE), "language": language})
        return [Clause(phonemes, read) for phonemes, read in header["clauses"]]

    def close(self) -> None:
        """End the processes; what they speak now fails. Idempotent."""
        with self._lock:
            self._closed = True
            live, self._live = self._live, set()
        for process in live:
            process.end()

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes, int]:
        """The answer, and the rate of its samples."""
        process: _Process | None = self._free.get()
        try:
            for _ in range(_TRIES):
                process = process or self._start()
                try:
                    header, body = process.ask(request)
                except _Broken:
                    self._drop(process)
                    process = None
                else:
                    break
            else:
                raise ModelError("espeak-ng ended twice over a sentence")
        except StartupError as error:
            raise ModelError(error.message) from error
        finally:
            self._free.put(process)
        if "error" in header:
            raise ModelError(header["error"])
        return header, body, process.rate

    def _start(self) -> _Process:
        process = _Process(self._library)
        with self._lock:
            if not self._closed:
                self._live.add(process)
                return process
        process.end()
        raise ModelError("espeak-ng is closed")

    def _drop(self, process: _Process) -> None:
        """Let go of a process that has ended."""
        with self._lock:
            known = process in self._live
            self._live.discard(process)
        if known:
            _log.warning("espeak.process_ended", status=process.end())


class _Process:
    """One process that speaks, for one thread at a time."""

    def __init__(self, library: str) -> None:
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        command = [sys.executable, "-I", "-S", str(_SCRIPT), library]
        try:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null)
            header, _ = self._answer()
        except (OSError, _Broken) as error:
            raise StartupError(f"{library} cannot be used ({error}): {_REMEDY}") from error
        if "error" in header:
            self.end()
            raise StartupError(f"{header['error']}: {_REMEDY}")
        self.rate = int(header["rate"])
        self.languages: list[str] = header["languages"]

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Send a request and wait for its answer. Raises `_Broken`."""
        encoded = json.dumps(request).encode()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(LENGTHS.pack(len(encoded), 0) + encoded)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:  # ValueError: `end` has closed it
            raise _Broken from error
        return self._answer()

    def end(self) -> int:
        """Kill it; its exit status."""
        self._process.kill()
        status = self._process.wait()
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):  # What was written last has no reader any more.
            self._process.stdin.close()
        self._process.stdout.close()
        return status

    def _answer(self) -> tuple[dict[str, Any], bytes]:
        header, body = LENGTHS.unpack(self._read(LENGTHS.size))
        return cast("dict[str, Any]", json.loads(self._read(header))), self._read(body)

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        try:
            content = self._process.stdout.read(count)
        except (OSError, ValueError) as error:
            raise _Broken from error
        if len(content) < count:
            raise _Broken("it ended")
        return content
