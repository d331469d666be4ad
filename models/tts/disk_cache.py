"""The disk cache of slowly synthesized speech, which survives a restart: a file for each piece.

What agents say may be personal data: file names are a keyed hash of the request (the key lies in the folder), files do
not contain the text, and only the server's user can read them."""

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
from models.runtime.thread_priority import lower_thread_priority

_KEY_FILE: Final = ".key"
_KEY_BYTES: Final = 32
_SUFFIX: Final = ".speech"
_HEADER: Final = struct.Struct("<8s16sIII")
"""Magic, checksum of everything after it, rate in Hz, words, samples."""
_WORD: Final = struct.Struct("<II")
_MAGIC: Final = b"TRKSPCH1"
_MAX_PENDING_WRITES: Final = 64
"""Maximum number of pending writes; if the disk is slower than that, further pieces are not cached."""
_WRITE_PAUSE_S: Final = 60
"""Time without writes after a failed one, so that a full disk is not tried for each piece."""
_THREADS: Final = 2
_NICENESS: Final = 5

_log = structlog.get_logger()


class SpeechDiskCache:
    """Files in a folder of their own, at most `limit` bytes; the least recently used are evicted first. It works in
    threads of its own, and never raises an error: then speech is synthesized anew."""

    def __init__(self, folder: Path, limit: int) -> None:
        """Lists all files: for start-up. An unusable folder is logged."""
        self._folder = folder
        self._limit = limit
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._size = 0
        self._pending_writes = 0
        self._writes_paused_until = 0.0
        self._threads = ThreadPoolExecutor(
            _THREADS, thread_name_prefix="speech-files", initializer=lower_thread_priority, initargs=(_NICENESS,)
        )
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
        """The cached speech of a text; None if there is none, or none that can be read. `version` changes when the
        voice's sound does."""
        if not self._key:
            return None
        name = self._name(version, text, settings)
        with self._lock:
            if name not in self._sizes:
                return None
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, name, text)

    def put(self, version: str, speech: SynthesizedSpeech, settings: VoiceSettings) -> None:
        """Cache a speech; returns at once. Its samples must not be changed afterwards."""
        with self._lock:
            busy = self._pending_writes >= _MAX_PENDING_WRITES or time.monotonic() < self._writes_paused_until
            if not self._key or busy or speech.samples.nbytes > self._limit // 4:
                return
            self._pending_writes += 1
        try:
            self._threads.submit(self._write, self._name(version, speech.text, settings), speech)
        except RuntimeError:  # It is closed.
            self._pending_writes -= 1

    def close(self) -> None:
        """Complete the pending writes, and end the threads. Idempotent."""
        self._threads.shutdown(wait=True)

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._key = _key(self._folder)
        files_found: list[tuple[float, str, int]] = []
        for path in self._folder.iterdir():
            if path.suffix == _SUFFIX:
                facts = path.stat()
                files_found.append((facts.st_mtime, path.name, facts.st_size))
            elif path.name != _KEY_FILE and path.name.startswith("."):
                path.unlink(missing_ok=True)  # Incomplete: the server was killed while it wrote the file.
        for _, name, size in sorted(files_found):
            self._sizes[name] = size
            self._size += size
        self._evict()

    def _name(self, version: str, text: str, settings: VoiceSettings) -> str:
        request = (version, settings.voice, settings.speed, settings.stability, settings.rate, text)
        content = repr(request).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, key=self._key, digest_size=20).hexdigest() + _SUFFIX

    def _read(self, name: str, text: str) -> SynthesizedSpeech | None:
        path = self._folder / name
        try:
            content = path.read_bytes()
            os.utime(path)
            speech = _decode(content, text)
        except (OSError, ValueError, struct.error) as error:
            _log.warning("speech_files.unreadable", file=name, error=str(error))
            self._remove(name)
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
            self._pause_writes(error)
        else:
            with self._lock:
                self._size += len(content) - self._sizes.pop(name, 0)
                self._sizes[name] = len(content)
            self._evict()
        finally:
            with self._lock:
                self._pending_writes -= 1

    def _pause_writes(self, error: OSError) -> None:
        self._writes_paused_until = time.monotonic() + _WRITE_PAUSE_S
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        _log.warning("speech_files.not_written", error=error.strerror, seconds=_WRITE_PAUSE_S)
        if full:  # Recordings of calls on the same disk have priority.
            self._evict(self._size // 2)

    def _evict(self, limit: int | None = None) -> None:
        """Evict the least recently used files until the rest is within the limit."""
        limit_bytes = self._limit if limit is None else limit
        for name in self._pop_least_recent(limit_bytes):
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def _pop_least_recent(self, limit_bytes: int) -> Iterator[str]:
        while True:
            with self._lock:
                if self._size <= limit_bytes or not self._sizes:
                    return
                name, size = self._sizes.popitem(last=False)
                self._size -= size
            yield name

    def _remove(self, name: str) -> None:
        with self._lock:
            self._size -= self._sizes.pop(name, 0)
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)


def _key(folder: Path) -> bytes:
    """The key of the file names, created if there is none; files of another key are never found."""
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
    """Write a file that only the server's user can read, without a sync to disk: after a crash it is found damaged."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)


def _encode(speech: SynthesizedSpeech) -> bytes:
    words = b"".join(_WORD.pack(word.char_end, word.sample_end) for word in speech.words)
    body = words + speech.samples.astype("<i2").tobytes()
    facts = speech.rate, len(speech.words), len(speech.samples)
    return _HEADER.pack(_MAGIC, _checksum(body, facts), *facts) + body


def _decode(content: bytes, text: str) -> SynthesizedSpeech:
    """Raises `ValueError` or `struct.error` for a damaged file."""
    mark, digest, *facts = _HEADER.unpack_from(content)
    rate, words, samples = facts
    body = content[_HEADER.size :]
    if (
        mark != _MAGIC
        or digest != _checksum(body, (rate, words, samples))
        or len(body) != words * _WORD.size + 2 * samples
    ):
        raise ValueError("the checksum or size is wrong")
    timings = [WordTiming(*timing) for timing in _WORD.iter_unpack(body[: words * _WORD.size])]
    return SynthesizedSpeech(
        text, np.frombuffer(body, "<i2", offset=words * _WORD.size).astype(np.int16), rate, tuple(timings)
    )


def _checksum(body: bytes, facts: tuple[int, int, int]) -> bytes:
    return hashlib.blake2b(body, digest_size=16, salt=struct.pack("<III", *facts)).digest()
