"""A call that is over, as rules read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Line:
    """What one side said."""

    role: Literal["user", "assistant"]
    content: str


@dataclass(frozen=True)
class Wanted:
    """A value that is looked for."""

    name: str
    description: str
    kind: Literal["string", "boolean", "number"]
