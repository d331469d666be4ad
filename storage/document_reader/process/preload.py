"""The parts that read a kind of file, loaded before the file is."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

from storage.document_reader.base.media_types import DocumentFormat
from storage.document_reader.terms.tokenizer import terms_of

_LATE: Final = {DocumentFormat.PDF: ("pypdf",), DocumentFormat.MARKDOWN: ("markdown_it",)}
"""Packages of which parts are loaded only when a file asks for them."""
_LATE_FOR_ALL: Final = ("encodings", "chardet")
_LATE_IN_PYTHON: Final = ("heapq", "_strptime", "locale", "traceback")
"""Parts that other modules of Python load when they come to need them: `Counter.most_common`, `datetime.strptime`."""
_OTHER_SYSTEMS: Final = {"encodings.mbcs", "encodings.oem"}


def load_reader(kind: DocumentFormat) -> None:
    """What reads every file of that kind."""
    importlib.import_module(f"storage.document_reader.formats.{kind.value}")


def load_everything(kind: DocumentFormat, language: str) -> None:
    """All that any file of that kind can ask for, for a process that cannot open a file afterwards. Takes some 0.2 s of
    processor time."""
    for name in _LATE_IN_PYTHON:
        importlib.import_module(name)
    for name in (*_LATE.get(kind, ()), *_LATE_FOR_ALL):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}.", onerror=lambda _: None):
            if module.name not in _OTHER_SYSTEMS and not module.name.endswith("__main__"):
                _try(module.name)
    importlib.import_module("chardet").detect("größer".encode("cp1252"))  # its tables are files, too
    list(terms_of("words", language))


def _try(name: str) -> None:
    """Modules for what is not installed are none."""
    try:
        importlib.import_module(name)
    except ImportError:
        return
