"""The process that reads one file: `python -m storage.document_reader.process.worker JOB`, the file on standard input,
the passages on standard output."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final

from config import sandbox
from config.sandbox import code_paths, landlock, rlimits
from storage.document_reader.base.errors import BROKEN, TOO_MUCH_MEMORY, UnreadableDocument
from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.chunker import Chunk, chunks_of
from storage.document_reader.process.preload import load_all_modules, load_reader
from storage.document_reader.process.protocol import ReadJob, end_line, passage_line, unreadable_line
from storage.document_reader.reader import read_blocks

SPARE_BYTES: Final = 2**24
"""Bytes that are freed so that exhausted memory can be reported."""


def main(argument: str, source: BinaryIO, output: BinaryIO) -> None:
    """Apply the job's limits to this process, enter the sandbox, read the file and write the output."""
    job = ReadJob.from_argument(argument)
    apply_limits(job.limits)
    load_reader(job.kind)
    if not landlock.is_available():
        load_all_modules(job.kind, job.language)
    sandbox.enter(code_paths.loadable_paths("config", "storage"))
    for line in output_lines(job, source):
        output.write(line)
    output.flush()


def apply_limits(allowed: ReadLimits) -> None:
    """Limit this process irrevocably: memory, CPU time, open files; no core dump, no file written, no further
    process."""
    logging.disable()  # parsers log many warnings
    signal.alarm(int(allowed.wall_s) + 1)  # in case the server has died
    rlimits.set_rlimits(allowed.memory_bytes, allowed.cpu_s, allowed.open_files)


def output_lines(job: ReadJob, source: BinaryIO) -> Iterator[bytes]:
    """Yields the output lines; for a failure of any kind the last line reports it."""
    count = 0
    spare = bytearray(SPARE_BYTES)
    try:
        for chunk in _passages(job, source):
            yield passage_line(chunk)
            count += 1
        yield end_line(count)
    except UnreadableDocument as unreadable:
        yield unreadable_line(unreadable.message, unreadable.cause)
    except MemoryError:
        spare.clear()  # the reader's memory is freed only afterwards
        yield unreadable_line(TOO_MUCH_MEMORY, "MemoryError")
    except Exception as error:  # noqa: BLE001 a file may break its reader anywhere and in any way
        yield unreadable_line(BROKEN, type(error).__name__)


def _passages(job: ReadJob, source: BinaryIO) -> Iterator[Chunk]:
    allowed = job.limits
    data = source.read(allowed.file_bytes + 1)
    if len(data) > allowed.file_bytes:
        raise UnreadableDocument(f"The file is larger than {allowed.file_bytes:,} bytes")
    for chunk in chunks_of(read_blocks(data, job.kind, allowed, job.charset), language=job.language):
        if chunk.position >= allowed.passages:
            raise UnreadableDocument(f"The file has more than {allowed.passages:,} passages")
        yield chunk


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
