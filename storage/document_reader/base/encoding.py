"""Detection of text encodings: UTF-8 directly, all others by chardet, with rules for cases that chardet gets wrong:
damaged UTF-8, UTF-16 without a byte order mark in a non-Latin script, and a few Latin letters."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import Final

from storage.document_reader.base.errors import UnreadableDocument

NOT_TEXT: Final = "The file is not text"

_WIDE_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
"""Byte order marks; UTF-32's little-endian one begins with UTF-16's."""
_WIDE_ENCODINGS: Final = ("utf-16", "utf-32")
_SAMPLE: Final = 2**16
_FAULTS: Final = 0.02
"""Share of wrong characters, of those that are not ASCII, up to which text is still damaged UTF-8."""
_USUAL: Final = re.compile(
    "[\t\n\r -~\u00a0-\u07ff\u0900-\u0eff\u2010-\u2030\u20ac\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef]"
)
"""Characters of common scripts."""
_MOSTLY_USUAL: Final = 0.95
_WESTERN: Final = "cp1252"
_LATIN: Final = frozenset(
    map(chr, (*range(0xC0, 0xD7), *range(0xD8, 0xF7), *range(0xF8, 0x180), *range(0x218, 0x21C)))
) | frozenset(
    "\u00a0\u20ac\u00a3\u00a7\u00b0\u00ab\u00bb\u00b7\u00bf\u00a1\u2013\u2014\u2018\u2019\u201a\u201c\u201d\u201e\u2026"
)
"""Common characters of texts in Latin letters, beyond ASCII."""
_USUAL_IN_LATIN: Final = ("windows-12", "iso-8859")
_FEW: Final = 20
"""Characters beyond ASCII up to which a guess is not reliable."""
_ASCII_LETTERS: Final = re.compile("[A-Za-z]")
_CONTROL_BYTES: Final = re.compile(b"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
_MAX_CONTROLS: Final = 0.02


def decode(data: bytes, declared: str | None = None) -> str:
    """Returns the text of `data`: by its byte order mark, else as UTF-16 or UTF-8 when it can only be that, else as
    `declared`, else by a guess from frequencies of letters. Raises `UnreadableDocument` when it is no text in any
    encoding."""
    text = _decode_unambiguous(data)
    if text is None:
        text = _as_declared(data, declared)
    if text is None or _is_garbled(text):
        text = _as_utf16_without_bom(data) or text or _guessed(data)
    if _is_garbled(text):
        raise UnreadableDocument(NOT_TEXT)
    return text


def _is_garbled(text: str) -> bool:
    sample = text[:_SAMPLE]
    return len(_CONTROLS.findall(sample)) > _MAX_CONTROLS * len(sample) + 1


def _decode_unambiguous(data: bytes) -> str | None:
    if data.startswith(codecs.BOM_UTF8):
        return data.decode("utf-8-sig", "replace")
    wide = _wide(data[:_SAMPLE])
    if wide is not None:
        return data.decode(wide, "replace")
    if b"\x1b" in data:  # ISO 2022 switches alphabets by escapes; all its bytes would be ASCII
        return None
    return _as_utf8(data)


def _wide(sample: bytes) -> str | None:
    """UTF-16 or UTF-32, by its byte order mark or its zero bytes."""
    if b"\0" not in sample and not sample.startswith(_WIDE_MARKS):
        return None
    found = _detected(sample) or ""
    return found if found.startswith(_WIDE_ENCODINGS) else None


def _detected(data: bytes) -> str | None:
    from chardet import detect  # imported late: most files are UTF-8

    encoding = detect(data)["encoding"]
    return encoding.lower() if encoding else None


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
    except (LookupError, ValueError):  # an unknown encoding, or bytes that are invalid in it
        return None


def _as_utf16_without_bom(data: bytes) -> str | None:
    """UTF-16 without a byte order mark in a non-Latin script: some bytes are control characters, as in no other
    encoding, and in one byte order nearly all characters are common ones, in the other one fewer."""
    even = data[: len(data) // 2 * 2]
    if len(_CONTROL_BYTES.findall(even[:_SAMPLE])) <= _MAX_CONTROLS * len(even[:_SAMPLE]):
        return None
    shares: list[tuple[float, str]] = []
    for codec in ("utf-16-le", "utf-16-be"):
        with suppress(UnicodeDecodeError):
            sample = even[:_SAMPLE].decode(codec)
            shares.append((len(_USUAL.findall(sample)) / len(sample), codec))
    shares.sort(reverse=True)
    is_even = len(shares) > 1 and shares[0][0] == shares[1][0]
    if is_even or not shares or shares[0][0] < _MOSTLY_USUAL:
        return None
    return even.decode(shares[0][1], "replace")


def _guessed(data: bytes) -> str:
    """The text by chardet's guess; by the most common encoding of Latin letters where a guess from a few of them is
    implausible."""
    found = _detected(_non_ascii_lines(data))
    text = _as_declared(data, found) or data.decode(found or _WESTERN, "replace")
    doubted = _is_guessed_from_few(text) and not (found or "").startswith(_USUAL_IN_LATIN)
    return (_as_declared(data, _WESTERN) if doubted or _is_misread(text) else None) or text


def _is_guessed_from_few(text: str) -> bool:
    """True if a text has few characters beyond ASCII, and more ASCII letters than these."""
    beyond = sum(not character.isascii() for character in text[:_SAMPLE])
    return beyond <= _FEW and beyond < len(_ASCII_LETTERS.findall(text[:_SAMPLE]))


def _is_misread(text: str) -> bool:
    return _is_guessed_from_few(text) and any(not (each.isascii() or each in _LATIN) for each in text)


def _non_ascii_lines(data: bytes) -> bytes:
    """The lines that are not plain ASCII, up to the size of a sample: only they differ between encodings."""
    if b"\x1b" in data[:_SAMPLE]:
        return data[:_SAMPLE]
    lines: list[bytes] = []
    size = 0
    for line in data.split(b"\n"):
        if not line.isascii() and size < _SAMPLE:
            lines.append(line[:_SAMPLE])
            size += len(line)
    return b"\n".join(lines)
