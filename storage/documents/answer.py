"""What the server and the process that reads a file say to each other.

The order is one argument of JSON. The answer is lines of JSON: `[text, terms]` for each passage, then
`{"passages": n}` or `{"unreadable": reason, "cause": cause}`. Without such a last line, the process was stopped by its
limits or broke down.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from storage.documents.chunks import Chunk
from storage.documents.errors import BROKEN, TOO_LONG, Unreadable
from storage.documents.kinds import Kind
from storage.documents.limits import Limits


@dataclass(frozen=True)
class Order:
    """What the process is to read, and how much it may take."""

    kind: Kind
    limits: Limits
    charset: str | None = None

    def argument(self) -> str:
        """The order as an argument."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(argument: str) -> Order:
        """The order that `argument` holds."""
        order = json.loads(argument)
        return Order(Kind(order["kind"]), Limits(**order["limits"]), order["charset"])


def passage_line(chunk: Chunk) -> bytes:
    """The line for a passage."""
    return _line([chunk.text, chunk.terms])


def end_line(passages: int) -> bytes:
    """The last line when all went well."""
    return _line({"passages": passages})


def unreadable_line(reason: str, cause: str) -> bytes:
    """The last line otherwise."""
    return _line({"unreadable": reason, "cause": cause})


def passages_of(output: bytes, status: int) -> list[Chunk]:
    """The passages of a whole answer by a process that ended with `status` (negative: by that signal). Raises
    `Unreadable` for everything else."""
    if status in (-signal.SIGXCPU, -signal.SIGALRM):
        raise Unreadable(TOO_LONG, f"signal {-status}")
    *lines, end = output.split(b"\n")
    match _parsed(lines.pop()) if lines else None:
        case {"unreadable": str(reason), "cause": str(cause)}:
            raise Unreadable(reason, cause)
        case {"passages": int(count)} if status == 0 and count == len(lines) and not end:
            return list(_chunks(lines))
        case _:
            raise Unreadable(BROKEN, f"status {status} after {len(lines)} passages")


def _chunks(lines: list[bytes]) -> Iterator[Chunk]:
    for position, line in enumerate(lines):
        match _parsed(line):
            case [str(text), str(terms)]:
                yield Chunk(position, text, terms)
            case _:
                raise Unreadable(BROKEN, f"line {position} is no passage")


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
