"""Protocol Buffers (protobuf.dev, Encoding): reads and writes fields of model files without a schema.

A message is a sequence of fields, each with a number and a wire type. Parts of a message that are written one after
another are merged by the reader.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_METADATA: Final = 14
"""Field of `ModelProto` in onnx.proto: an entry of key (1) and value (2)."""
_VARINT: Final = 0
_SIZED: Final = 2
"""Wire types."""
_VARINT_BITS: Final = 70
"""Ten groups of seven bits: the longest varint."""

Message = bytes | mmap.mmap | memoryview


def fields_of(message: Message, only: int | None = None) -> Iterator[tuple[int, bytes | int]]:
    """Number and value of each field, or of the fields with the number `only`. Raises `ValueError`."""
    for number, kind, begin, end in _scan(message):
        if only in (None, number):
            yield number, _varint(message, begin)[0] if kind == _VARINT else bytes(message[begin:end])


def submessages(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and content of each length-delimited field, without a copy; others are skipped. Raises `ValueError`."""
    return ((number, message[begin:end]) for number, kind, begin, end in _scan(message) if kind == _SIZED)


def onnx_metadata(path: Path) -> dict[str, str]:
    """The metadata of an ONNX file, without reading its weights. Raises `ValueError` for another file, and
    `OSError`."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        entries = [dict(fields_of(entry)) for _, entry in fields_of(content, _METADATA) if isinstance(entry, bytes)]
    return {_text(entry.get(1)): _text(entry.get(2)) for entry in entries}


def sized_field(number: int, content: bytes) -> bytes:
    """A length-delimited field: text, bytes or a message."""
    return _encode_varint(number << 3 | _SIZED) + _encode_varint(len(content)) + content


def varint_field(number: int, value: int) -> bytes:
    """A varint field of a non-negative integer."""
    return _encode_varint(number << 3 | _VARINT) + _encode_varint(value)


def _text(value: bytes | int | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _scan(message: Message) -> Iterator[tuple[int, int, int, int]]:
    """Number and wire type of each field, and begin and end of its value."""
    at, size = 0, len(message)
    while at < size:
        key, begin = _varint(message, at)
        match key & 7:
            case 0:
                _, at = _varint(message, begin)
            case 1:
                at = begin + 8
            case 2:
                length, begin = _varint(message, begin)
                at = begin + length
            case 5:
                at = begin + 4
            case _:
                raise ValueError("it is no protocol buffer")
        if at > size:
            raise ValueError("it is cut off")
        yield key >> 3, key & 7, begin, at


def _varint(message: Message, at: int) -> tuple[int, int]:
    """A varint (base 128, lowest digit first), and the offset after it."""
    value = 0
    for shift in range(0, _VARINT_BITS, 7):
        if at >= len(message):
            raise ValueError("it is cut off")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("it is no protocol buffer")


def _encode_varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])
