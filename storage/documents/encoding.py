"""Bytes to text, whatever the encoding."""

from __future__ import annotations

import codecs
import re
from typing import Final

from storage.documents.errors import Unreadable

NOT_TEXT: Final = "The file is not text"

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks; UTF-32's before UTF-16's, which it begins with."""
_SAMPLE: Final = 2**16
_WIDE: Final = 0.6
"""Share of zero bytes at even or at odd places from which text is UTF-16 without a mark."""
_FAULTS: Final = 0.02
"""Share of wrong characters, of those that are not ASCII, up to which text is still damaged UTF-8."""
_CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
_MOST_CONTROLS: Final = 0.02


def decode(data: bytes, declared: str | None = None) -> str:
    """The text of `data`: by its mark, else as UTF-16 or UTF-8 when it can only be that, else as `declared`, else by a
    guess from its letters' frequencies. Raises `Unreadable` when it is no text in any encoding."""
    text = _unmistakable(data)
    if text is None:
        text = _as_declared(data, declared)
    if text is None:
        text = _guessed(data)
    sample = text[:_SAMPLE]
    if len(_CONTROLS.findall(sample)) > _MOST_CONTROLS * len(sample) + 1:
        raise Unreadable(NOT_TEXT)
    return text


def _unmistakable(data: bytes) -> str | None:
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return data.decode(codec, "replace")
    wide = _wide(data[:_SAMPLE])
    if wide is not None:
        return data.decode(wide, "replace")
    if b"\x1b" in data:  # ISO 2022 switches alphabets by escapes; all its bytes would be ASCII
        return None
    return _as_utf8(data)


def _wide(sample: bytes) -> str | None:
    """UTF-16 without a mark: in most languages, one half of nearly all characters is a zero byte."""
    half = len(sample) // 2
    if half < 2:
        return None
    if sample[1::2].count(0) > _WIDE * half and sample[::2].count(0) == 0:
        return "utf-16-le"
    if sample[::2].count(0) > _WIDE * half and sample[1::2].count(0) == 0:
        return "utf-16-be"
    return None


def _as_utf8(data: bytes) -> str | None:
    text = data.decode("utf-8", "replace")
    faults = text.count("\ufffd")
    if not faults:
        return text
    ascii_bytes = len(data.translate(None, bytes(range(0x80, 0x100))))
    beyond_ascii = len(text) - ascii_bytes
    return text if faults <= _FAULTS * beyond_ascii else None


def _as_declared(data: bytes, declared: str | None) -> str | None:
    if declared is None:
        return None
    try:
        return data.decode(declared)
    except (LookupError, ValueError):  # a name that is none, or bytes that are not in it
        return None


def _guessed(data: bytes) -> str:
    from chardet import detect  # imported late: most files need no guess

    found = detect(_telling(data))["encoding"]
    return _as_declared(data, found) or data.decode(found or "cp1252", "replace")


def _telling(data: bytes) -> bytes:
    """Lines that are not plain ASCII, up to the sample's size: the others tell nothing."""
    if b"\x1b" in data[:_SAMPLE]:
        return data[:_SAMPLE]
    lines: list[bytes] = []
    size = 0
    for line in data.split(b"\n"):
        if not line.isascii() and size < _SAMPLE:
            lines.append(line[:_SAMPLE])
            size += len(line)
    return b"\n".join(lines)
