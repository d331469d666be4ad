"""Writes log lines on its own thread, so that a blocked disk or pipe blocks no thread that logs."""

from __future__ import annotations

import atexit
import io
import threading
from typing import Final, TextIO

import structlog

MAX_WAITING_CHARACTERS: Final = 8 * 1024 * 1024
"""Characters that may wait to be written; further lines are dropped and counted."""
CLOSE_TIMEOUT_S: Final = 2.0
"""How long the end of the process waits for lines that are not written yet."""

log = structlog.get_logger()


class LogWriter(io.TextIOBase):
    """A text stream in front of `stream`. `write` returns at once; each call is a line. After `close` it writes on the
    calling thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: list[str] = []
        self._size = 0
        self._dropped = 0
        # Re-entrant: the garbage collection may run while it is held, and what it collects may log.
        self._changed = threading.Condition(threading.RLock())
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write(self, text: str) -> int:
        """Queue a line."""
        with self._changed:
            if self._closing and not self._thread.is_alive():
                self._stream.write(text)
                self._stream.flush()
            elif self._size + len(text) > MAX_WAITING_CHARACTERS:
                self._dropped += 1
            else:
                self._waiting.append(text)
                self._size += len(text)
                self._changed.notify()
        return len(text)

    def isatty(self) -> bool:
        """True if `stream` is a terminal."""
        return self._stream.isatty()

    def close(self) -> None:
        """Write the waiting lines, for at most `CLOSE_TIMEOUT_S`. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_TIMEOUT_S)
        atexit.unregister(self.close)

    def _run(self) -> None:
        more = True
        while more:
            lines, left_out, more = self._take()
            if not self._write_lines(lines):
                with self._changed:
                    self._dropped += left_out + len(lines)
            elif left_out:
                log.warning("log.lines_left_out", count=left_out, why="they could not be written as fast as they came")
        self._write_lines(self._take()[0])  # the last warning itself

    def _take(self) -> tuple[list[str], int, bool]:
        """Waits for lines; returns them, the number of lines dropped before them, and False once it is closed."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            lines, self._waiting = self._waiting, []
            left_out, self._dropped, self._size = self._dropped, 0, 0
            return lines, left_out, not self._closing

    def _write_lines(self, lines: list[str]) -> bool:
        """Returns True if they were written. A failure cannot be logged, because the log is what failed."""
        try:
            self._stream.write("".join(lines))
            self._stream.flush()
        except Exception:  # noqa: BLE001 - the thread must outlive whatever a stream may raise
            return False
        return True
