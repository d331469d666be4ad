"""An embeddings model with a few words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from config.errors import ModelError

MEANINGS = {"dog": "animal", "pets": "animal", "cost": "money", "price": "money", "fee": "money"}
THINGS = ("animal", "money")


class FakeEmbeddings:
    """A model of few words: texts are similar if they name the same things."""

    dimensions = 64

    def __init__(self, name: str = "meaning") -> None:
        self.name = self.version = name
        self.asked: list[str] = []
        self.told: list[str] = []
        self.error: ModelError | None = None
        self.refuses: str | None = None
        self.hangs = False

    async def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        (self.asked if query else self.told).extend(texts)
        if self.error is not None:
            raise self.error
        if self.refuses in texts:
            raise ModelError("refused")
        if self.hangs:
            await asyncio.Event().wait()
        return np.stack([self._row(text) for text in texts])

    def _row(self, text: str) -> NDArray[np.float32]:
        row = np.zeros(64, np.float32)
        row[sum(map(ord, text)) % 60] = 0.3
        for word in text.lower().strip("?.").split():
            if word in MEANINGS:
                row[60 + THINGS.index(MEANINGS[word])] += 1
        whole: NDArray[np.float32] = row / np.linalg.norm(row)
        return whole
