"""The graph of a Piper voice's ONNX file, parsed before the file is loaded: its inputs and outputs, and the phoneme
durations, which published voices compute and do not return.

Weights are skipped. Protobuf parsers merge the parts of a message, so an output is added by appending to the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from models.runtime.protobuf import sized_field, submessages

_MODEL_GRAPH: Final = 7
_GRAPH_NODE, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 11, 12
_NODE_OUTPUT, _NODE_TYPE = 2, 4
_VALUE_NAME: Final = 1
_CEIL: Final = b"Ceil"
"""VITS rounds the durations of phonemes up to whole frames, and nothing else."""


@dataclass(frozen=True)
class Graph:
    """Names of a graph's inputs and outputs, and of the outputs of its Ceil nodes."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    ceil_outputs: Sequence[str]

    @property
    def durations_output(self) -> str | None:
        """The value with the phonemes' durations in frames; None if it is ambiguous."""
        return self.ceil_outputs[0] if len(self.ceil_outputs) == 1 else None


def read_graph(content: bytes | memoryview) -> Graph:
    """Parse an ONNX file. Raises `ValueError` for another file."""
    view = memoryview(content)
    inputs, outputs, ceil_outputs = list[str](), list[str](), list[str]()
    has_graph = False
    for field, graph in submessages(view):
        if field != _MODEL_GRAPH:
            continue
        has_graph = True
        for number, value in submessages(graph):
            if number == _GRAPH_INPUT:
                inputs.append(_name(value))
            elif number == _GRAPH_OUTPUT:
                outputs.append(_name(value))
            elif number == _GRAPH_NODE:
                ceil_outputs.extend(_ceil_outputs(value))
    if not has_graph:
        raise ValueError("it has no graph")
    return Graph(inputs, outputs, ceil_outputs)


def with_output(content: bytes, name: str) -> bytes:
    """The same file with a value of its graph as a further output."""
    value = sized_field(_VALUE_NAME, name.encode())
    return content + sized_field(_MODEL_GRAPH, sized_field(_GRAPH_OUTPUT, value))


def _ceil_outputs(node: memoryview) -> Iterator[str]:
    parts = list(submessages(node))
    if any(number == _NODE_TYPE and bytes(value) == _CEIL for number, value in parts):
        yield from (bytes(value).decode() for number, value in parts if number == _NODE_OUTPUT)


def _name(value: memoryview) -> str:
    return next((bytes(part).decode() for number, part in submessages(value) if number == _VALUE_NAME), "")
