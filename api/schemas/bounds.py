"""How large each part of a body may be. Generous: what is sensible fits several times over. Together they keep every
resource far below the size of a page, whatever its characters take as JSON. Bounds that the API fixes for a single
field (a prompt's 32000 characters) stand with the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

LONGEST_NAME: Final = 255
"""Lengths are in Unicode code points."""
LONGEST_DESCRIPTION: Final = 2000
"""Of a part of something: a parameter, a value to extract, a transfer target."""
LONGEST_TOOL_DESCRIPTION: Final = 4000
LONGEST_ADDRESS: Final = 4096
LONGEST_SECRET: Final = 1024
LONGEST_HEADER_NAME: Final = 256
LONGEST_HEADER_VALUE: Final = 8192
MOST_TRANSFER_TARGETS: Final = 64
MOST_EXTRACTIONS: Final = 100
MOST_TOOL_IDS: Final = 500
MOST_PARAMETERS: Final = 64
MOST_HEADERS: Final = 32
MOST_PREFIXES: Final = 100
MOST_SOURCES: Final = 32
MOST_VALUES: Final = 1000
"""Of an object that the client is free to fill, nested values included."""
MOST_JSON: Final = 32 * 1024
"""Bytes of such an object: UTF-8, without spaces between the values."""
MOST_DEPTH: Final = 64
"""Of objects and lists within each other, the body itself included."""
BOUNDS: Final = f"at most {MOST_VALUES} values, nested ones included, and {MOST_JSON // 1024} KiB"


def bounds_whole(validator: F) -> F:
    """Marks a validator that bounds all that is in a value, so that its parts need no bounds of their own."""
    WHOLE.add(validator)
    return validator


WHOLE: Final[set[Callable[..., Any]]] = set()
"""The validators that bound a value as a whole."""


MIB: Final = 1024 * 1024
