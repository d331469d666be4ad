"""The little of protocol buffers (protobuf.dev, Encoding) that it takes to look into models' files."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_METADATA: Final = 14
"""Of `ModelProto` in onnx.proto: an entry of a key (1) and a value (2)."""

Message = bytes | mmap.mmap


def fields_of(message: Message, only: int | None = None) -> Iterator[tuple[int, bytes | int]]:
    """Number and value of each field, or of those of one number alone; the others are not read then. Raises
    `ValueError`."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            if only in (None, number):
                yield number, value
            continue
        length, at = _length(message, at, kind)
        if at + length > len(message):
            raise ValueError("it is cut off")
        if only in (None, number):
            yield number, message[at : at + length]
        at += length


def onnx_metadata(path: Path) -> dict[str, str]:
    """What an ONNX file says of itself; its weights are not read. Raises `ValueError` if it is none, and `OSError`."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        entries = [dict(fields_of(entry)) for _, entry in fields_of(content, _METADATA) if isinstance(entry, bytes)]
    return {_text(entry.get(1)): _text(entry.get(2)) for entry in entries}


def _text(value: bytes | int | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _length(message: Message, at: int, kind: int) -> tuple[int, int]:
    """How long a value of that wire type is, and where it begins."""
    match kind:
        case 1:
            return 8, at
        case 2:
            return _varint(message, at)
        case 5:
            return 4, at
    raise ValueError("it is no protocol buffer")


def _varint(message: Message, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
    raise ValueError("it is cut off")
