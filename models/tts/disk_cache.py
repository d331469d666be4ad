"""The disk cache of speech that took long to synthesize, beyond a restart: a file for each piece.

What agents say may be about persons: names of files tell nothing (a keyed hash of what was asked for, with a key that
lies in the folder), files do not hold the text, and nobody but the server's user may read them.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import secrets
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import structlog

from models.protocols import SynthesizedSpeech, VoiceSettings, WordTiming

_KEY_FILE: Final = ".key"
_KEY_BYTES: Final = 32
_SUFFIX: Final = ".speech"
_HEADER: Final = struct.Struct("<8s16sIII")
"""Mark, sum of all that follows it, rate in Hz, words, samples."""
_WORD: Final = struct.Struct("<II")
_MARK: Final = b"TRKSPCH1"
_MOST_WAITING: Final = 64
"""Pieces that wait to be written; on a disk that is slower than that, others are not kept."""
_REST_S: Final = 60
"""After a failure to write, for so long nothing is written: a full disk is not asked for each piece."""
_THREADS: Final = 2
_NICENESS: Final = 5

_log = structlog.get_logger()


class SpeechDiskCache:
    """Files in a folder of their own, at most `limit` bytes of them; what was used longest ago goes first. It works in
    threads of its own, and fails to do so without an error: then speech is made anew."""

    def __init__(self, folder: Path, limit: int) -> None:
        """Reads the names of all files: for start-up. A folder that cannot be used is told in the log."""
        self._folder = folder
        self._limit = limit
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._size = 0
        self._waiting = 0
        self._resting_until = 0.0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="speech-files", initializer=_give_way)
        self._key = b""
        try:
            self._open()
        except OSError as error:
            _log.warning("speech_files.unusable", folder=str(folder), error=error.strerror)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return self._size

    async def get(self, version: str, text: str, settings: VoiceSettings) -> SynthesizedSpeech | None:
        """What was kept for a text; None: nothing, or nothing that can be read. `version` changes when the voice's
        sound does."""
        if not self._key:
            return None
        name = self._name(version, text, settings)
        with self._lock:
            if name not in self._sizes:
                return None
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, name, text)

    def put(self, version: str, speech: SynthesizedSpeech, settings: VoiceSettings) -> None:
        """Keep a speech; returns at once. Its samples must not be changed afterwards."""
        with self._lock:
            busy = self._waiting >= _MOST_WAITING or time.monotonic() < self._resting_until
            if not self._key or busy or speech.samples.nbytes > self._limit // 4:
                return
            self._waiting += 1
        try:
            self._threads.submit(self._write, self._name(version, speech.text, settings), speech)
        except RuntimeError:  # It is closed.
            self._waiting -= 1

    def close(self) -> None:
        """Write what waits, and end the threads. Idempotent."""
        self._threads.shutdown(wait=True)

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._key = _key(self._folder)
        found: list[tuple[float, str, int]] = []
        for path in self._folder.iterdir():
            if path.suffix == _SUFFIX:
                facts = path.stat()
                found.append((facts.st_mtime, path.name, facts.st_size))
            elif path.name != _KEY_FILE and path.name.startswith("."):
                path.unlink(missing_ok=True)  # What a server was writing when it was killed.
        for _, name, size in sorted(found):
            self._sizes[name] = size
            self._size += size
        self._make_room()

    def _name(self, version: str, text: str, settings: VoiceSettings) -> str:
        asked = (version, settings.voice, settings.speed, settings.stability, settings.rate, text)
        content = repr(asked).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, key=self._key, digest_size=20).hexdigest() + _SUFFIX

    def _read(self, name: str, text: str) -> SynthesizedSpeech | None:
        path = self._folder / name
        try:
            content = path.read_bytes()
            os.utime(path)
            speech = _decode(content, text)
        except (OSError, ValueError, struct.error) as error:
            _log.warning("speech_files.unreadable", file=name, error=str(error))
            self._forget(name)
            return None
        with self._lock:
            if name in self._sizes:
                self._sizes.move_to_end(name)
        return speech

    def _write(self, name: str, speech: SynthesizedSpeech) -> None:
        content = _encode(speech)
        fresh = self._folder / f".{name}.{secrets.token_hex(4)}"
        try:
            _create(fresh, content)
            fresh.replace(self._folder / name)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            self._suspend(error)
        else:
            with self._lock:
                self._size += len(content) - self._sizes.pop(name, 0)
                self._sizes[name] = len(content)
            self._make_room()
        finally:
            with self._lock:
                self._waiting -= 1

    def _suspend(self, error: OSError) -> None:
        self._resting_until = time.monotonic() + _REST_S
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        _log.warning("speech_files.not_written", error=error.strerror, seconds=_REST_S)
        if full:  # Calls are recorded on this disk too: they need the room more.
            self._make_room(self._size // 2)

    def _make_room(self, limit: int | None = None) -> None:
        """Take away what was used longest ago until the rest is within the limit."""
        most = self._limit if limit is None else limit
        for name in self._beyond(most):
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def _beyond(self, most: int) -> Iterator[str]:
        while True:
            with self._lock:
                if self._size <= most or not self._sizes:
                    return
                name, size = self._sizes.popitem(last=False)
                self._size -= size
            yield name

    def _forget(self, name: str) -> None:
        with self._lock:
            self._size -= self._sizes.pop(name, 0)
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)


def _key(folder: Path) -> bytes:
    """The key of the names, made when there is none; with another one, what is there is not found again."""
    path = folder / _KEY_FILE
    with suppress(FileNotFoundError):
        key = path.read_bytes()
        if len(key) == _KEY_BYTES:
            return key
    key = secrets.token_bytes(_KEY_BYTES)
    fresh = folder / f"{_KEY_FILE}.new"
    fresh.unlink(missing_ok=True)
    _create(fresh, key)
    fresh.replace(path)
    return key


def _create(path: Path, content: bytes) -> None:
    """Write a file that nobody else may read. It is not waited for the disk: what a crash leaves is found damaged."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)


def _encode(speech: SynthesizedSpeech) -> bytes:
    words = b"".join(_WORD.pack(word.char_end, word.sample_end) for word in speech.words)
    body = words + speech.samples.astype("<i2").tobytes()
    facts = speech.rate, len(speech.words), len(speech.samples)
    return _HEADER.pack(_MARK, _sum(body, facts), *facts) + body


def _decode(content: bytes, text: str) -> SynthesizedSpeech:
    """Raises `ValueError` or `struct.error` for what was not written so."""
    mark, digest, *facts = _HEADER.unpack_from(content)
    rate, words, samples = facts
    body = content[_HEADER.size :]
    if mark != _MARK or digest != _sum(body, (rate, words, samples)) or len(body) != words * _WORD.size + 2 * samples:
        raise ValueError("it is damaged")
    places = [WordTiming(*place) for place in _WORD.iter_unpack(body[: words * _WORD.size])]
    return SynthesizedSpeech(
        text, np.frombuffer(body, "<i2", offset=words * _WORD.size).astype(np.int16), rate, tuple(places)
    )


def _sum(body: bytes, facts: tuple[int, int, int]) -> bytes:
    return hashlib.blake2b(body, digest_size=16, salt=struct.pack("<III", *facts)).digest()


def _give_way() -> None:
    # On Linux this sets the niceness of the calling thread alone.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
