"""Writes log lines on a thread of its own: a disk or a reader that stands still holds up nobody who logs."""

from __future__ import annotations

import atexit
import io
import threading
from typing import Final, TextIO

import structlog

MOST_SIZE: Final = 8 * 1024 * 1024
"""Characters that may wait to be written; lines for which there is no room are counted and left out."""
LAST_S: Final = 2.0
"""How long the end of the process waits for what is not written yet."""

log = structlog.get_logger()


class LogWriter(io.TextIOBase):
    """A text stream in front of `stream`. `write` returns at once; a call is a line. After `close` it writes itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: list[str] = []
        self._size = 0
        self._left_out = 0
        # Re-entrant: the garbage collection may run while it is held, and what it collects may log.
        self._changed = threading.Condition(threading.RLock())
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write(self, text: str) -> int:
        """Hand in a line."""
        with self._changed:
            if self._closing and not self._thread.is_alive():
                self._stream.write(text)
                self._stream.flush()
            elif self._size + len(text) > MOST_SIZE:
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
        """Write what waits, if that can be done soon. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(LAST_S)
        atexit.unregister(self.close)

    def _run(self) -> None:
        more = True
        while more:
            lines, left_out, more = self._taken()
            if not self._put(lines):
                with self._changed:
                    self._left_out += left_out + len(lines)
            elif left_out:
                log.warning("log.lines_left_out", count=left_out, why="they could not be written as fast as they came")
        self._put(self._taken()[0])  # what that line said at the end

    def _taken(self) -> tuple[list[str], int, bool]:
        """All that waits, how many lines are missing before it, and whether more will come."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            lines, self._waiting = self._waiting, []
            left_out, self._left_out, self._size = self._left_out, 0, 0
            return lines, left_out, not self._closing

    def _put(self, lines: list[str]) -> bool:
        """Whether they were written. When the reader has gone or the disk is full, there is no place to say so."""
        try:
            self._stream.write("".join(lines))
            self._stream.flush()
        except Exception:  # noqa: BLE001 - the thread must outlive whatever a stream may raise
            return False
        return True
