"""Reads damaged files one after another, in a process with the limits of the worker.

`python -m tests.storage.document_reader.mutated_documents KIND COUNT`, a sound file on standard input; prints a line
for each of the COUNT files made of it: its seed, then the number of its passages or why there are none.
"""

from __future__ import annotations

import io
import json
import random
import sys
import zipfile

from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.base.media_types import DocumentFormat
from storage.document_reader.process.protocol import ReadJob
from storage.document_reader.process.worker import apply_limits, output_lines
from tests.storage.document_reader.office_files import zipped


def mutated(data: bytes, seed: int) -> bytes:
    """The file with a few changes: bytes changed, removed, repeated or moved, or its end truncated."""
    chance = random.Random(seed)
    file = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        place, other = chance.randrange(len(file)), chance.randrange(len(file))
        length = chance.choice((1, 1, 1, 4, 20, 200))
        match chance.randrange(6):
            case 0:
                file[place] ^= 1 << chance.randrange(8)
            case 1:
                file[place : place + length] = chance.randbytes(length)
            case 2:
                del file[place : place + length]
            case 3:
                file[place:place] = file[other : other + length]
            case 4:
                file[place : place + 1] = str(chance.choice((0, 1, -1, 2**31, 10**30))).encode()
            case _ if chance.random() < 0.1:
                del file[place:]
        if not file:
            break
    return bytes(file)


def mutated_within(data: bytes, seed: int) -> bytes:
    """The DOCX file with such changes in its main part, with a correct checksum."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["word/document.xml"] = mutated(parts["word/document.xml"], seed)
    return zipped(parts)


def main(kind: DocumentFormat, count: int, data: bytes) -> None:
    """Read `count` mutations of the file."""
    order = ReadJob(kind, ReadLimits(cpu_s=40))
    apply_limits(order.limits)
    for seed in range(count):
        change = mutated_within if kind is DocumentFormat.DOCX and seed % 2 else mutated
        *passages, last = output_lines(order, io.BytesIO(change(data, seed)))
        verdict = json.loads(last)
        assert verdict.get("passages", 0) == len(passages) or "unreadable" in verdict
        print(seed, json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main(DocumentFormat(sys.argv[1]), int(sys.argv[2]), sys.stdin.buffer.read())
