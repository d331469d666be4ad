"""Transcripts of calls in tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TIMES = ("startMs", "endMs", "words")


def without_times(items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns what was said and by whom."""
    return [{name: value for name, value in item.items() if name not in TIMES} for item in items]
