"""Values at and beyond the bounds of a field, for tests that go through a table of fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FieldCase:
    """A field: its default, values that it takes and values that it refuses."""

    name: str
    default: Any
    good: tuple[Any, ...]
    bad: tuple[Any, ...]
    nullable: bool = False

    def __str__(self) -> str:
        return self.name


def integer(name: str, low: int, high: int, default: int | None, *, nullable: bool = False) -> FieldCase:
    """A whole number from `low` to `high`."""
    bad: tuple[Any, ...] = (low - 1, high + 1, low + 0.5, str(low), True, [low], {}, 10**30)
    return FieldCase(name, default, (low, high), bad, nullable)


def number(name: str, low: float, high: float, default: float, *, nullable: bool = False) -> FieldCase:
    """A number from `low` to `high`; whole numbers count as numbers."""
    bad: tuple[Any, ...] = (low - 0.001, high + 0.001, str(high), True, [high], {})
    return FieldCase(name, default, (low, high, (low + high) / 2, 1), bad, nullable)


def text(
    name: str, low: int, high: int, default: str | None, *, nullable: bool = False, good: tuple[str, ...] = ()
) -> FieldCase:
    """A string of `low` to `high` code points."""
    short = ("x" * (low - 1),) if low else ()
    bad = (*short, "x" * (high + 1), 1, True, ["x"], {})
    return FieldCase(name, default, ("x" * max(low, 1), "x" * high, *good), bad, nullable)


def flag(name: str, *, default: bool) -> FieldCase:
    """true or false."""
    return FieldCase(name, default, (True, False), (0, 1, "true", "yes", [], {}))


def choice(name: str, values: tuple[str, ...], default: str | None) -> FieldCase:
    """One of some words."""
    return FieldCase(name, default, values, ("", values[0].upper(), f"{values[0]} ", "other", 1, True, [values[0]]))
