"""Size limits of the parts of a body. They are several times larger than sensible values, and together keep every
resource far below the size of a page, however many bytes its characters take as JSON. A limit of a single field, such
as the 32000 characters of a prompt, is defined with the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

MAX_NAME: Final = 255
"""Lengths are in Unicode code points."""
MAX_DESCRIPTION: Final = 2000
"""For parts of a resource: a parameter, an extraction field, a transfer target."""
MAX_TOOL_DESCRIPTION: Final = 4000
MAX_URL: Final = 4096
MAX_SECRET: Final = 1024
MAX_HEADER_NAME: Final = 256
MAX_HEADER_VALUE: Final = 8192
MAX_TRANSFER_TARGETS: Final = 64
MAX_TRANSFER_REASON: Final = 500
MAX_TRANSFER_SUMMARY: Final = 2000
MAX_EXTRACTIONS: Final = 100
MAX_TOOL_IDS: Final = 500
MAX_PARAMETERS: Final = 64
MAX_HEADERS: Final = 32
MAX_PREFIXES: Final = 100
MAX_SOURCES: Final = 32
MAX_VOICES: Final = 256
"""Of a remote model."""
MAX_VALUES: Final = 1000
"""Values in an object with keys of the client's choice, nested ones included."""
MAX_JSON: Final = 32 * 1024
"""Bytes of such an object: UTF-8, without spaces between the values."""
MAX_DEPTH: Final = 64
"""Levels of nested objects and lists, the body itself included."""
OBJECT_LIMITS: Final = f"at most {MAX_VALUES} values, nested ones included, and {MAX_JSON // 1024} KiB"


def bounds_whole_value(validator: F) -> F:
    """Marks a validator that limits the size of the complete value, so that its parts need no limits of their own."""
    WHOLE_VALUE_VALIDATORS.add(validator)
    return validator


WHOLE_VALUE_VALIDATORS: Final[set[Callable[..., Any]]] = set()
"""The validators that limit the size of the complete value."""


MIB: Final = 1024 * 1024
