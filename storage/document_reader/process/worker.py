"""The process that reads one file: `python -m storage.document_reader.process.worker ORDER`, the file on standard
input, the answer on standard output."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final

from config import sandbox
from config.sandbox import code, landlock, limits
from storage.document_reader.base.errors import BROKEN, TOO_MUCH_MEMORY, UnreadableDocument
from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.chunker import Chunk, chunks_of
from storage.document_reader.process.preload import load_everything, load_reader
from storage.document_reader.process.protocol import ReadJob, end_line, passage_line, unreadable_line
from storage.document_reader.reader import text_of

SPARE: Final = 2**24
"""Bytes that are kept to say that there is no memory left."""


def main(argument: str, source: BinaryIO, answer: BinaryIO) -> None:
    """Read the file under the order's limits, which bind this process from here on, and answer."""
    order = ReadJob.of(argument)
    apply_limits(order.limits)
    load_reader(order.kind)
    if not landlock.is_there():
        load_everything(order.kind, order.language)
    sandbox.enter(code.code_of("config", "storage"))
    for line in answer_lines(order, source):
        answer.write(line)
    answer.flush()


def apply_limits(allowed: ReadLimits) -> None:
    """Bound this process for good: memory, time, open files; no core dump, no file written, no further process."""
    logging.disable()  # parsers warn of every oddity
    signal.alarm(int(allowed.wall_s) + 1)  # should nobody be left to end it
    limits.bound(allowed.memory_bytes, allowed.cpu_s, allowed.open_files)


def answer_lines(order: ReadJob, source: BinaryIO) -> Iterator[bytes]:
    """The answer; whatever the file does to its reader, the last line says so."""
    count = 0
    spare = bytearray(SPARE)
    try:
        for chunk in _passages(order, source):
            yield passage_line(chunk)
            count += 1
        yield end_line(count)
    except UnreadableDocument as unreadable:
        yield unreadable_line(unreadable.message, unreadable.cause)
    except MemoryError:
        spare.clear()  # what the reader holds goes only after this
        yield unreadable_line(TOO_MUCH_MEMORY, "MemoryError")
    except Exception as error:  # noqa: BLE001 a file may break its reader anywhere and in any way
        yield unreadable_line(BROKEN, type(error).__name__)


def _passages(order: ReadJob, source: BinaryIO) -> Iterator[Chunk]:
    allowed = order.limits
    data = source.read(allowed.file_bytes + 1)
    if len(data) > allowed.file_bytes:
        raise UnreadableDocument(f"The file is larger than {allowed.file_bytes:,} bytes")
    for chunk in chunks_of(text_of(data, order.kind, allowed, order.charset), language=order.language):
        if chunk.position >= allowed.passages:
            raise UnreadableDocument(f"The file has more than {allowed.passages:,} passages")
        yield chunk


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
