"""What has to be known of a voice's ONNX file before it is loaded, and the lengths of phonemes, which published voices
compute and do not tell.

An ONNX file is a protobuf message (https://protobuf.dev/programming-guides/encoding/): fields of a number and a wire
type. Only those on the way to a node's type are looked at; weights are passed over. A message may be written in pieces
that a reader merges, so an output is added by what is put behind the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_MODEL_GRAPH: Final = 7
_GRAPH_NODE, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 11, 12
_NODE_OUTPUT, _NODE_TYPE = 2, 4
_VALUE_NAME: Final = 1
_ROUNDED_UP: Final = b"Ceil"
"""VITS rounds the lengths of phonemes up to whole frames, and nothing else."""


@dataclass(frozen=True)
class Graph:
    """Names of a graph's inputs and outputs, and of the values that are rounded up."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    rounded: Sequence[str]

    @property
    def durations_output(self) -> str | None:
        """The value that holds the phonemes' lengths in frames; None when that is not certain."""
        return self.rounded[0] if len(self.rounded) == 1 else None


def read_graph(content: bytes | memoryview) -> Graph:
    """Look through an ONNX file. Raises `ValueError` when it is none."""
    view = memoryview(content)
    inputs, outputs, rounded = list[str](), list[str](), list[str]()
    found = False
    for field, graph in _fields(view):
        if field != _MODEL_GRAPH:
            continue
        found = True
        for number, value in _fields(graph):
            if number == _GRAPH_INPUT:
                inputs.append(_name(value))
            elif number == _GRAPH_OUTPUT:
                outputs.append(_name(value))
            elif number == _GRAPH_NODE:
                rounded.extend(_rounded(value))
    if not found:
        raise ValueError("it has no graph")
    return Graph(inputs, outputs, rounded)


def with_output(content: bytes, name: str) -> bytes:
    """The same file with a value of its graph as a further output."""
    value = _field(_VALUE_NAME, name.encode())
    return content + _field(_MODEL_GRAPH, _field(_GRAPH_OUTPUT, value))


def _rounded(node: memoryview) -> Iterator[str]:
    parts = list(_fields(node))
    if any(number == _NODE_TYPE and bytes(value) == _ROUNDED_UP for number, value in parts):
        yield from (bytes(value).decode() for number, value in parts if number == _NODE_OUTPUT)


def _name(value: memoryview) -> str:
    return next((bytes(part).decode() for number, part in _fields(value) if number == _VALUE_NAME), "")


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and content of each field that has a length; the others are passed over. Raises `ValueError`."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        match key & 7:
            case 2:
                length, at = _varint(message, at)
                if length > end - at:
                    raise ValueError("it is cut off")
                yield key >> 3, message[at : at + length]
                at += length
            case 0:
                _, at = _varint(message, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case _:
                raise ValueError("it is no ONNX file")
    if at > end:
        raise ValueError("it is cut off")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number in base 128, the lowest digit first, and the place behind it."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("it is cut off")
        digit = message[at]
        at += 1
        number |= (digit & 0x7F) << shift
        if not digit & 0x80:
            return number, at
    raise ValueError("it is no ONNX file")


def _field(number: int, content: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(content)) + content


def _number(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])
