"""Preloading: imports the reader of a format before the sandbox is entered."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

from storage.document_reader.base.media_types import DocumentFormat
from storage.document_reader.terms.tokenizer import terms_of

_LATE: Final = {DocumentFormat.PDF: ("pypdf",), DocumentFormat.MARKDOWN: ("markdown_it",)}
"""Packages that import modules only when a file needs them."""
_LATE_FOR_ALL: Final = ("encodings", "chardet")
_LATE_STANDARD_MODULES: Final = ("heapq", "_strptime", "locale", "traceback")
"""Modules of the standard library that others import when they need them: `Counter.most_common`,
`datetime.strptime`."""
_OTHER_SYSTEMS: Final = {"encodings.mbcs", "encodings.oem"}


def load_reader(kind: DocumentFormat) -> None:
    """Import the reader of a format."""
    importlib.import_module(f"storage.document_reader.formats.{kind.value}")


def load_all_modules(kind: DocumentFormat, language: str) -> None:
    """Import all modules that a file of that format can need, for a process that cannot open files afterwards. Takes
    some 0.2 s of CPU time."""
    for name in _LATE_STANDARD_MODULES:
        importlib.import_module(name)
    for name in (*_LATE.get(kind, ()), *_LATE_FOR_ALL):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}.", onerror=lambda _: None):
            if module.name not in _OTHER_SYSTEMS and not module.name.endswith("__main__"):
                _try(module.name)
    importlib.import_module("chardet").detect("größer".encode("cp1252"))  # its tables are files, too
    list(terms_of("words", language))


def _try(name: str) -> None:
    """Import a module if it is installed."""
    try:
        importlib.import_module(name)
    except ImportError:
        return
