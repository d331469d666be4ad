"""Parses server-sent events (the HTML standard, "Server-sent events"): bytes in, data out."""

from __future__ import annotations

import re
from typing import Final

from models.errors import RemoteModelError

MOST_BYTES: Final = 256 * 1024
"""Of one event."""
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class SseParser:
    """Takes a stream apart, however it is cut into pieces. Only `data` counts; names, ids and comments are left out."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that `chunk` ends. Raises `RemoteModelError` for one that is too long."""
        self._rest += chunk
        events: list[str] = []
        at = 0
        while (end := _LINE_END.search(self._rest, at)) is not None:
            if end[0] == b"\r" and end.end() == len(self._rest):  # its \n may still come
                break
            self._line(bytes(self._rest[at : end.start()]), events)
            at = end.end()
        del self._rest[:at]
        self._bound(len(self._rest))
        return events

    def finish(self) -> list[str]:
        """The data of an event that the end of the stream cut off its blank line from."""
        events: list[str] = []
        for line in (bytes(self._rest).rstrip(b"\r"), b""):
            self._line(line, events)
        self._rest.clear()
        return events

    def _line(self, line: bytes, events: list[str]) -> None:
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
            self._bound(0)

    def _bound(self, more: int) -> None:
        if self._size + more > MOST_BYTES:
            raise RemoteModelError("broken", "sends an event that is longer than it may be")
