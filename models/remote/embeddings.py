"""Embeddings behind `/v1/embeddings`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from models.errors import RemoteModelError
from models.remote.client import RemoteModelClient, RequestBody
from models.remote.json_safety import parse_json

AT_ONCE: Final = 64
"""Texts in one request."""
MOST_BYTES: Final = 32 * 1024 * 1024
MOST_SIZE: Final = 16_384
_PATH: Final = "/embeddings"


class RemoteEmbeddings:
    """Turns texts into vectors that are near each other when the texts mean alike."""

    def __init__(self, endpoint: RemoteModelClient) -> None:
        self.name = endpoint.model.name
        self.version = f"{endpoint.model.name}/{endpoint.model.model}"
        self.dimensions = 0
        self._endpoint = endpoint

    async def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        """See `Embeddings`; the protocol knows no questions, only texts. Raises `RemoteModelError`."""
        rows: list[NDArray[np.float32]] = []
        for begin in range(0, len(texts), AT_ONCE):
            rows += await self._some(texts[begin : begin + AT_ONCE])
        if len({len(row) for row in rows}) > 1:
            raise self._broken("vectors of several sizes")
        if rows:
            self.dimensions = len(rows[0])
        return np.stack(rows) if rows else np.zeros((0, self.dimensions), np.float32)

    async def _some(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        model = self._endpoint.model
        asked = {"model": model.model, "input": list(texts), "encoding_format": "float", **model.extra}
        body = RequestBody(json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace"))
        content = await self._endpoint.fetch(_PATH, body, max_bytes=MOST_BYTES)
        return await asyncio.to_thread(self._read, content, len(texts))

    def _read(self, content: bytes, count: int) -> list[NDArray[np.float32]]:
        """Takes some 10 ms: a thread's work."""
        answer = parse_json(content)
        items = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise self._broken("no vectors")
        by_place: dict[int, Any] = {}
        for place, item in enumerate(items):
            index = item.get("index", place)
            by_place[index if isinstance(index, int) else place] = item.get("embedding")
        return [self._row(by_place.get(place)) for place in range(count)]

    def _row(self, numbers: Any) -> NDArray[np.float32]:
        if not isinstance(numbers, list) or not 0 < len(numbers) <= MOST_SIZE:
            raise self._broken("no vector for each text")
        if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
            raise self._broken("vectors that are no numbers")
        try:
            row = np.array(numbers, np.float32)
        except OverflowError as error:
            raise self._broken("numbers that are too large") from error
        length = float(np.linalg.norm(row.astype(np.float64)))
        if not np.isfinite(length) or length == 0:
            raise self._broken("vectors without a direction")
        return (row / np.float32(length)).astype(np.float32)

    def _broken(self, what: str) -> RemoteModelError:
        return RemoteModelError("broken", f"{self.name} sends {what}")
