"""Vowel restoration for Arabic and Hebrew, which leave vowels out in writing, by the networks of the package piper-tts,
as Piper does: libtashkeel for Arabic, Nakdimon and its rules for Hebrew.

Modules of the package are imported without its `__init__`, which would load its espeak-ng into the server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from config.errors import ModelError
from media.onnx import onnxruntime
from models.tts.piper.phonemizer import Clause, package_folder

_PACKAGE: Final = "piper"
_MAX_CHARACTERS: Final = 12_000
"""libtashkeel's limit for a text."""


@dataclass(frozen=True)
class DiacritizedText:
    """Arabic text with diacritics. `text[:i]` stands for the first `origin[i]` characters of the original."""

    text: str
    origin: Sequence[int]


def diacritize(text: str) -> DiacritizedText:
    """Arabic `text` with the diacritics of Piper. The first call takes 0.1 s. Raises `ModelError`."""
    diacritics, diacritizer = _arabic()
    if len(text) > _MAX_CHARACTERS:
        raise ModelError(f"the text has more than {_MAX_CHARACTERS} characters")
    diacritized = diacritizer(text)
    positions = [position for position, character in enumerate(text) if character not in diacritics]
    origin, passed = [0], len(text) - len(text.lstrip())
    for character in diacritized:
        passed += character not in diacritics
        origin.append(positions[passed] if passed < len(positions) else len(text))
    return DiacritizedText(diacritized, origin)


def hebrew_clause(text: str) -> Clause:
    """The phonemes of a Hebrew text, which Piper treats as one sentence. The first call takes 0.2 s."""
    phonemes = "".join("".join(sentence) for sentence in _hebrew()(text))
    return Clause(phonemes, "", True, text)


@cache
def _arabic() -> tuple[frozenset[str], Callable[[str], str]]:
    """The set of diacritics, and the function that adds them to a text."""
    module = _module("tashkeel")
    return frozenset(module.ARABIC_DIACRITICS), module.TashkeelDiacritizer()


@cache
def _hebrew() -> Callable[[str], list[list[str]]]:
    _module("hebrew")
    phonemize: Callable[[str], list[list[str]]] = _module("phonemize_hebrew").HebrewPhonemizer().phonemize
    return phonemize


def _module(name: str) -> Any:
    """A module of the package, whose networks run in one thread."""
    if _PACKAGE not in sys.modules:
        sys.modules[_PACKAGE] = _empty_package(package_folder())
    module: Any = import_module(f"{_PACKAGE}.{name}")
    if hasattr(module, "InferenceSession"):
        module.InferenceSession = _session
    return module


def _empty_package(folder: Path) -> ModuleType:
    spec = ModuleSpec(_PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    return module_from_spec(spec)


def _session(path: Path | str, **_: object) -> Any:
    """A replacement for the package's `InferenceSession`: one thread, no log messages."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
