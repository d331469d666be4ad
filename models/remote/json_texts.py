"""JSON of strangers."""

from __future__ import annotations

import json
from typing import Any, Final

from models.remote.trouble import RemoteTrouble

_TOLD: Final = 200
"""Characters of a server's own words in an error of ours."""


def json_bytes(content: bytes | str) -> Any:
    """What a JSON text holds. Raises `RemoteTrouble`."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RemoteTrouble("broken", "sends what is no JSON") from error


def clean(text: str) -> str:
    """Without what no database and no file takes: halves of characters (`\\ud83d` by itself) and zeros."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def error_told(content: bytes | str) -> str:
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
    line = " ".join(clean(told).split())
    return "".join(each for each in line if each.isprintable())[:_TOLD].partition("input")[0].strip()
