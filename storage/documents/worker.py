"""The process that reads one file: `python -m storage.documents.worker ORDER`, the file on standard input, the answer
on standard output."""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final

from storage.documents.answer import Order, end_line, passage_line, unreadable_line
from storage.documents.chunks import Chunk, chunks_of
from storage.documents.errors import BROKEN, TOO_MUCH_MEMORY, Unreadable
from storage.documents.limits import Limits
from storage.documents.reading import text_of

NICENESS: Final = 10
SPARE: Final = 2**24
"""Bytes that are kept to say that there is no memory left."""


def main(argument: str, source: BinaryIO, answer: BinaryIO) -> None:
    """Read the file under the order's limits, which bind this process from here on, and answer."""
    order = Order.of(argument)
    restrain(order.limits)
    for line in answer_lines(order, source):
        answer.write(line)
    answer.flush()


def restrain(limits: Limits) -> None:
    """Bound this process for good: memory, time, open files; no core dump, no file written, no further process."""
    os.nice(NICENESS)
    logging.disable()  # parsers warn of every oddity
    signal.alarm(int(limits.wall_s) + 1)  # should nobody be left to end it
    for what, wanted in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # The signal of the soft limit on the processor's time tells why; that of the hard one would not.
        ceiling = most + 1 if what == resource.RLIMIT_CPU and most != hard else most
        resource.setrlimit(what, (most, ceiling))


def answer_lines(order: Order, source: BinaryIO) -> Iterator[bytes]:
    """The answer; whatever the file does to its reader, the last line says so."""
    count = 0
    spare = bytearray(SPARE)
    try:
        for chunk in _passages(order, source):
            yield passage_line(chunk)
            count += 1
        yield end_line(count)
    except Unreadable as unreadable:
        yield unreadable_line(unreadable.message, unreadable.cause)
    except MemoryError:
        spare.clear()  # what the reader holds goes only after this
        yield unreadable_line(TOO_MUCH_MEMORY, "MemoryError")
    except Exception as error:  # noqa: BLE001 a file may break its reader anywhere and in any way
        yield unreadable_line(BROKEN, type(error).__name__)


def _passages(order: Order, source: BinaryIO) -> Iterator[Chunk]:
    limits = order.limits
    data = source.read(limits.file_bytes + 1)
    if len(data) > limits.file_bytes:
        raise Unreadable(f"The file is larger than {limits.file_bytes:,} bytes")
    for chunk in chunks_of(text_of(data, order.kind, limits, order.charset), language=order.language):
        if chunk.position >= limits.passages:
            raise Unreadable(f"The file has more than {limits.passages:,} passages")
        yield chunk


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
