"""Argument types of several commands, for `argparse`."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime


def positive_int(text: str) -> int:
    """A whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("takes a whole number above 0")
    return number


def instant(text: str) -> datetime:
    """An ISO 8601 time, UTC if it has no offset."""
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=at.tzinfo or UTC)
    except ValueError as error:
        raise argparse.ArgumentTypeError("takes an ISO 8601 time, such as 2026-11-21T05:00") from error


def name(text: str) -> str:
    """The name of something that exists."""
    stripped = text.strip()
    if not stripped:
        raise argparse.ArgumentTypeError("takes a name")
    return stripped


def new_name(text: str) -> str:
    """The name of something new, which is safe to print in lists and logs."""
    from api.schemas.patterns import ONE_LINE, PATTERN_MESSAGES, TAGS

    stripped = name(text)
    if re.fullmatch(ONE_LINE, stripped) is None or TAGS.search(stripped) is not None:
        raise argparse.ArgumentTypeError(PATTERN_MESSAGES[ONE_LINE].replace("Must", "must"))
    return stripped
