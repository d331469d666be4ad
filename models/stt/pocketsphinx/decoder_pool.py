"""A pool of PocketSphinx decoders, lent for one turn each and not for one call: a decoder takes 90 MB, and most callers
are silent most of the time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import structlog

from models.stt.pocketsphinx.bindings import Decoder

_log = structlog.get_logger()


class DecoderPool:
    """Up to `limit` decoders, of which `ready` are loaded at once and the others on demand."""

    def __init__(self, load: Callable[[], Decoder], ready: int, limit: int) -> None:
        self._load = load
        self._limit = limit
        self._lock = threading.Lock()
        self._idle = [load() for _ in range(ready)]
        self._count = ready
        self._waiting: deque[Callable[[], None]] = deque()

    def acquire(self, on_free: Callable[[], None]) -> Decoder | None:
        """A decoder, newly loaded (0.25 s) if none is idle; None at the limit: then `on_free` is called once, as soon
        as a decoder may be free. Raises `StartupError`."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if self._count >= self._limit:
                self._waiting.append(on_free)
                return None
            self._count += 1
            count = self._count
        try:
            decoder = self._load()
        except Exception:
            self._remove_one()
            raise
        _log.info("stt.decoder_added", decoders=count, limit=self._limit)
        return decoder

    def release(self, decoder: Decoder) -> None:
        """Return a decoder that has ended its utterance."""
        with self._lock:
            self._idle.append(decoder)
            waiting = self._waiting.popleft() if self._waiting else None
        if waiting is not None:
            waiting()

    def pass_on(self) -> None:
        """Let the next one in the queue have the decoder that the caller was told of and does not need."""
        with self._lock:
            is_free = bool(self._idle) or self._count < self._limit
            waiting = self._waiting.popleft() if is_free and self._waiting else None
        if waiting is not None:
            waiting()

    def discard(self, decoder: Decoder) -> None:
        """Return a decoder that failed: it is freed, and another may be loaded in its place."""
        decoder.free()
        self._remove_one()

    def close(self) -> None:
        """Free all idle decoders; `discard` frees those on loan."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._count -= len(idle)
        for decoder in idle:
            decoder.free()

    def _remove_one(self) -> None:
        with self._lock:
            self._count -= 1
            waiting = self._waiting.popleft() if self._waiting else None
        if waiting is not None:
            waiting()
