"""The graph of a Piper voice's ONNX file, read before the file is loaded: its inputs and outputs, and the phonemes'
durations, which published voices compute and do not return.

Weights are passed over. A protobuf message may be written in pieces that a reader merges, so an output is added by what
is put behind the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from models.runtime.protobuf import sized_field, submessages

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
    for field, graph in submessages(view):
        if field != _MODEL_GRAPH:
            continue
        found = True
        for number, value in submessages(graph):
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
    value = sized_field(_VALUE_NAME, name.encode())
    return content + sized_field(_MODEL_GRAPH, sized_field(_GRAPH_OUTPUT, value))


def _rounded(node: memoryview) -> Iterator[str]:
    parts = list(submessages(node))
    if any(number == _NODE_TYPE and bytes(value) == _ROUNDED_UP for number, value in parts):
        yield from (bytes(value).decode() for number, value in parts if number == _NODE_OUTPUT)


def _name(value: memoryview) -> str:
    return next((bytes(part).decode() for number, part in submessages(value) if number == _VALUE_NAME), "")
