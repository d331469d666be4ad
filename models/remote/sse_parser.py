"""Parses server-sent events (HTML standard, "Server-sent events"): bytes in, data out."""

from __future__ import annotations

import re
from typing import Final

from models.errors import RemoteModelError

MAX_EVENT_BYTES: Final = 256 * 1024
"""Bytes of one event, at most."""
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class SseParser:
    """Parses a stream in chunks of any size. Only `data` is returned; names, ids and comments are skipped."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[str]:
        """Add a chunk. Returns the data of the events that it completes. Raises `RemoteModelError` for one that is too
        long."""
        self._buffer += chunk
        events: list[str] = []
        at = 0
        while (end := _LINE_END.search(self._buffer, at)) is not None:
            if end[0] == b"\r" and end.end() == len(self._buffer):  # its \n may still come
                break
            self._read_line(bytes(self._buffer[at : end.start()]), events)
            at = end.end()
        del self._buffer[:at]
        self._require_size(len(self._buffer))
        return events

    def finish(self) -> list[str]:
        """The data of an event without its blank line at the end of the stream."""
        events: list[str] = []
        for line in (bytes(self._buffer).rstrip(b"\r"), b""):
            self._read_line(line, events)
        self._buffer.clear()
        return events

    def _read_line(self, line: bytes, events: list[str]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data).decode("utf-8", "replace"))
            self._data.clear()
            self._size = 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
            self._require_size(0)

    def _require_size(self, additional: int) -> None:
        if self._size + additional > MAX_EVENT_BYTES:
            raise RemoteModelError("broken", "sends an event that is longer than it may be")
