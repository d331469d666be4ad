"""Writes log lines on a thread of its own: a disk or a reader that stands still holds up nobody who logs."""

from __future__ import annotations

import atexit
import io
import threading
from collections import deque
from typing import Final, TextIO

import structlog

MOST_BYTES: Final = 8 * 1024 * 1024
"""What may wait to be written; lines for which there is no room are counted and left out."""
LAST_S: Final = 2.0
"""How long the end of the process waits for what is not written yet."""

log = structlog.get_logger()


class LogWriter(io.TextIOBase):
    """A text stream in front of `stream`. `write` returns at once; a call is a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: deque[str] = deque()
        self._size = 0
        self._left_out = 0
        self._changed = threading.Condition(threading.Lock())
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write(self, text: str) -> int:
        """Hand in a line."""
        with self._changed:
            if self._size + len(text) > MOST_BYTES:
                self._left_out += 1
            else:
                self._waiting.append(text)
                self._size += len(text)
                self._changed.notify()
        return len(text)

    def isatty(self) -> bool:
        """As the stream behind."""
        return self._stream.isatty()

    def close(self) -> None:
        """Write what waits, if that can be done soon. Idempotent; what comes later is not written."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(LAST_S)
        atexit.unregister(self.close)

    def _run(self) -> None:
        more = True
        while more:
            text, left_out, more = self._taken()
            self._put(text)
            if left_out:
                log.warning("log.lines_left_out", count=left_out, why="they came faster than they could be written")

    def _taken(self) -> tuple[str, int, bool]:
        """All that waits, how many lines there was no room for, and whether more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            text, left_out = "".join(self._waiting), self._left_out
            self._waiting.clear()
            self._size = self._left_out = 0
            return text, left_out, not self._closing

    def _put(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the reader has gone, or the disk is full
            with self._changed:
                self._left_out += text.count("\n")
