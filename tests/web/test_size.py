"""The size of what a browser loads before it can show anything."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Final

STATIC: Final = Path("web/static")
MAX_BYTES: Final = 250_000
IMPORT: Final = re.compile(r"""(?:\bfrom|\bimport)\s*"\./([^"]+)\"""")
"""Of a module as esbuild writes it; `import(...)` is loaded later."""


def _with_imports(name: str) -> set[str]:
    """The module and all that it imports at once."""
    found, left = set[str](), [name]
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += IMPORT.findall((STATIC / module).read_text())
    return found


def test_the_first_view_is_small() -> None:
    loaded = {"index.html", "main.css", *_with_imports("main.js")}
    assert len(loaded) > 5, "the imports were found"
    assert sum(len(gzip.compress((STATIC / each).read_bytes())) for each in loaded) < MAX_BYTES
