"""Models that many calls share, by their own tables: language models, and what comes with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import models_llm

Row = dict[str, Any]


async def run(quick: bool) -> list[Row]:
    """The rows of all parts."""
    return await models_llm.run(quick)


def misses(rows: Sequence[Row]) -> list[str]:
    """Which rows miss which goal, in words."""
    return models_llm.misses(rows)
