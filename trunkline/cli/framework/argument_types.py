"""Argument types of several commands."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click


class Value(click.ParamType[Any]):
    """The type of an argument that a function converts. The function raises `ValueError` with what it takes."""

    def __init__(self, name: str, convert: Callable[[str], Any]) -> None:
        self.name = name
        self._convert = convert

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the converted text; a default that is no text stays as it is."""
        if not isinstance(value, str):
            return value
        try:
            return self._convert(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def positive_int(text: str) -> int:
    """A whole number above 0."""
    if not text.isascii() or not text.isdecimal() or (number := int(text)) < 1:
        raise ValueError("takes a whole number above 0")
    return number


def instant(text: str) -> datetime:
    """An ISO 8601 time, UTC if it has no offset."""
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=at.tzinfo or UTC)
    except ValueError as error:
        raise ValueError("takes an ISO 8601 time, such as 2026-11-21T05:00") from error


def name(text: str) -> str:
    """The name of something that exists."""
    stripped = text.strip()
    if not stripped:
        raise ValueError("takes a name")
    return stripped


def new_name(text: str) -> str:
    """The name of something new, which is safe to print in lists and logs."""
    from api.schemas.patterns import ONE_LINE, PATTERN_MESSAGES, TAGS

    stripped = name(text)
    if re.fullmatch(ONE_LINE, stripped) is None or TAGS.search(stripped) is not None:
        raise ValueError(PATTERN_MESSAGES[ONE_LINE].replace("Must", "must"))
    return stripped


POSITIVE_INT = Value("n", positive_int)
INSTANT = Value("time", instant)
NAME = Value("name", name)
NEW_NAME = Value("name", new_name)
