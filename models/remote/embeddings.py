"""Remote embeddings (`/v1/embeddings`)."""

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
from models.remote.request_queue import Priority

BATCH_TEXTS: Final = 64
"""Texts of one request."""
MAX_RESPONSE_BYTES: Final = 32 * 1024 * 1024
MAX_DIMENSIONS: Final = 16_384
_PATH: Final = "/embeddings"


class RemoteEmbeddings:
    """See `Embeddings`."""

    def __init__(self, client: RemoteModelClient) -> None:
        self.name = client.model.name
        self.version = f"{client.model.name}/{client.model.model}"
        self.dimensions = 0
        self._client = client

    async def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        """See `Embeddings.embed`; the API does not distinguish queries, but they go first here. Raises
        `RemoteModelError`."""
        priority = Priority.LIVE if query else Priority.BACKGROUND
        rows: list[NDArray[np.float32]] = []
        for begin in range(0, len(texts), BATCH_TEXTS):
            rows += await self._embed_batch(texts[begin : begin + BATCH_TEXTS], priority)
        if len({len(row) for row in rows}) > 1:
            raise self._error("vectors of several sizes")
        if rows:
            self.dimensions = len(rows[0])
        return np.stack(rows) if rows else np.zeros((0, self.dimensions), np.float32)

    async def _embed_batch(self, texts: Sequence[str], priority: Priority) -> list[NDArray[np.float32]]:
        model = self._client.model
        request = {"model": model.model, "input": list(texts), "encoding_format": "float"}
        body = RequestBody(json.dumps(model.with_extra(request), ensure_ascii=False).encode("utf-8", "replace"))
        content = await self._client.fetch(_PATH, body, max_bytes=MAX_RESPONSE_BYTES, priority=priority)
        return await asyncio.to_thread(self._parse, content, len(texts))

    def _parse(self, content: bytes, count: int) -> list[NDArray[np.float32]]:
        """Parse a response. Takes some 10 ms, so it runs in a thread."""
        answer = parse_json(content)
        items = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise self._error("no vectors")
        by_index: dict[int, Any] = {}
        for position, item in enumerate(items):
            index = item.get("index", position)
            by_index[index if isinstance(index, int) else position] = item.get("embedding")
        return [self._unit_vector(by_index.get(index)) for index in range(count)]

    def _unit_vector(self, numbers: Any) -> NDArray[np.float32]:
        if not isinstance(numbers, list) or not 0 < len(numbers) <= MAX_DIMENSIONS:
            raise self._error("no vector for each text")
        if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
            raise self._error("vectors that are no numbers")
        try:
            row = np.array(numbers, np.float32)
        except OverflowError as error:
            raise self._error("numbers that are too large") from error
        length = float(np.linalg.norm(row.astype(np.float64)))
        if not np.isfinite(length) or length == 0:
            raise self._error("vectors without a direction")
        return (row / np.float32(length)).astype(np.float32)

    def _error(self, problem: str) -> RemoteModelError:
        return RemoteModelError("broken", f"{self.name} sends {problem}")
