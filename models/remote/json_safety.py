"""Parses and cleans JSON of unknown origin."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from models.errors import RemoteModelError

_TOLD: Final = 200
"""Characters of a server's own words in an error of ours."""
_ECHO: Final = re.compile(r"""["']input(?:_value)?\\*["']\s*:|\binput(?:_value)?\s*=""")
"""Where a server's words begin to repeat what it was sent: a field of JSON or of Python."""


def parse_json(content: bytes | str, *, counts: bool = True) -> Any:
    """What a JSON text holds. Raises `RemoteModelError`, which `counts` as it says."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RemoteModelError("broken", "sends what is no JSON", counts=counts) from error


def strip_unstorable(text: str) -> str:
    """Without what no database and no file takes: halves of characters (`\\ud83d` by itself) and zeros."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def error_excerpt(content: bytes | str) -> str:
    """The beginning of what an error's body says, in one line. What a server repeats of its input is what a caller
    said: it is left out."""
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        told = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    for name in ("error", "message", "detail"):
        if isinstance(told, dict) and name in told:
            told = told[name]
    if not isinstance(told, str):
        return ""
    line = " ".join(strip_unstorable(told).split())
    return _ECHO.split("".join(each for each in line if each.isprintable()))[0][:_TOLD].strip()
