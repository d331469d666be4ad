"""Parses and cleans untrusted JSON."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from models.errors import RemoteModelError

_MAX_EXCERPT: Final = 200
"""Characters of a server's text in an error message."""
_ECHOED_INPUT: Final = re.compile(r"""["']input(?:_value)?\\*["']\s*:|\binput(?:_value)?\s*=""")
"""Where a server's error text begins to repeat the request: a field of JSON or of Python."""


def parse_json(content: bytes | str, *, counts: bool = True) -> Any:
    """The parsed JSON. Raises `RemoteModelError` with `counts`."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RemoteModelError("broken", "sends what is no JSON", counts=counts) from error


def strip_unstorable(text: str) -> str:
    """The text without lone surrogates (`\\ud83d`) and null characters, which no database or file takes."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def error_excerpt(content: bytes | str) -> str:
    """The beginning of an error body's message, in one line. Repeated input is left out, because it holds a caller's
    words."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    if not isinstance(value, str):
        return ""
    line = " ".join(strip_unstorable(value).split())
    return _ECHOED_INPUT.split("".join(each for each in line if each.isprintable()))[0][:_MAX_EXCERPT].strip()
