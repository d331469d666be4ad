"""Cache of serialized resources: a resource whose version has not changed is not serialized again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from threading import Lock
from typing import Final, TypeVar

from storage.tables.row_mapping import BATCH_ROWS

V = TypeVar("V", bound=Hashable)
MAX_BYTES: Final = 32 * 1024 * 1024
"""Bytes of JSON in memory; the least recently used is removed first."""


class JsonCache:
    """JSON by version. A version names a resource and its state, so no entry can be out of date. Thread-safe."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: dict[Hashable, bytes] = {}
        self._lock = Lock()

    @property
    def size(self) -> int:
        """Bytes of JSON in the cache."""
        return self._bytes

    def get_or_render(
        self, versions: Sequence[V], render: Callable[[list[V]], Iterable[tuple[V, bytes]]]
    ) -> Iterator[bytes]:
        """Yields the JSON of each version, in order. `render` serializes the missing ones, a batch at a time, as the
        iterator is consumed; a version that it does not return is left out."""
        for at in range(0, len(versions), BATCH_ROWS):
            yield from self._batch(versions[at : at + BATCH_ROWS], render)

    def _batch(self, versions: Sequence[V], render: Callable[[list[V]], Iterable[tuple[V, bytes]]]) -> list[bytes]:
        with self._lock:
            found = {version: self._entries.pop(version) for version in versions if version in self._entries}
            for version, text in found.items():
                self._entries[version] = text
        missing = [version for version in versions if version not in found]
        if missing:
            rendered = dict(render(missing))
            self._add(rendered)
            found |= rendered
        return [found[version] for version in versions if version in found]

    def _add(self, rendered: dict[V, bytes]) -> None:
        with self._lock:
            for version, text in rendered.items():
                self._bytes += len(text) - len(self._entries.pop(version, b""))
                self._entries[version] = text
            while self._bytes > self._max_bytes:
                self._bytes -= len(self._entries.pop(next(iter(self._entries))))
