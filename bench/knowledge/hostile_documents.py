"""Hostile and malformed documents, each read as an upload is: `python -m bench.knowledge.hostile_documents [TEXT]`.
With TEXT, those whose name contains it.

Each must end with passages or with an error message that the uploader understands, and leave no process; "The file
could not be read" is the message of an internal error, and fails the run.
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from config import logging as logs
from storage.document_reader.base.errors import BROKEN, UnreadableDocument
from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.base.media_types import DocumentFormat
from storage.document_reader.process.extract import extract
from tests.storage.document_reader.office_files import W, docx, p, page_of, pdf, pdf_of, stream, zipped

_MIB: Final = 2**20
_MAX_BYTES: Final = 20 * _MIB
_PAGE: Final = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R /Resources << %s >> >>"
_FONT: Final = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
_ROOT: Final = b"<< /Type /Catalog /Pages 2 0 R >>"
DocumentMaker = Callable[[], bytes]


def _full(piece: bytes, end: bytes = b"hello") -> DocumentMaker:
    """20 MiB of a repeated piece, followed by some text."""
    return lambda: piece * ((_MAX_BYTES - len(end)) // len(piece)) + end


def _times(piece: bytes, count: int) -> DocumentMaker:
    return lambda: piece * count


def _one_page(content: bytes) -> bytes:
    pages = b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>"
    return pdf_of([_ROOT, pages, _FONT, _PAGE % (5, b"/Font << /F1 3 0 R >>"), content])


def _compressed_twice() -> bytes:
    compressed = zlib.compress(zlib.compress(b" " * (900 * _MIB), 9), 9)
    start = b"<< /Filter [/FlateDecode /FlateDecode] /Length %d >>\nstream\n" % len(compressed)
    return _one_page(start + compressed + b"\nendstream")


def _nested_forms() -> bytes:
    """Twelve form XObjects, each of which paints the next one ten times."""

    def form(number: int, content: bytes) -> bytes:
        compressed = zlib.compress(content)
        inside = b"/XObject << /X %d 0 R >> /Font << /F1 6 0 R >>" % number
        start = b"<< /Type /XObject /Subtype /Form /BBox [0 0 1 1] /Resources << %s >> /Filter /FlateDecode" % inside
        return start + b" /Length %d >>\nstream\n%s\nendstream" % (len(compressed), compressed)

    again = b"/X Do " * 10
    pages = b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>"
    first = [_ROOT, pages, _PAGE % (4, b"/XObject << /X 5 0 R >>"), stream(again), form(7, again), _FONT]
    return pdf_of([*first, *(form(8 + place, again) for place in range(12)), form(99, b"BT /F1 9 Tf (ha) Tj ET")])


def _repeated_page() -> bytes:
    """A page of 100,000 words, 2,000 times."""
    pages = b"<< /Type /Pages /Count 2000 /Kids [%s] >>" % (b"3 0 R " * 2000)
    words = stream(b"BT /F1 11 Tf " + b"1 0 0 1 50 700 Tm (hello) Tj " * 100_000)
    return pdf_of([_ROOT, pages, _PAGE % (4, b"/Font << /F1 5 0 R >>"), words, _FONT])


def _zip_bomb() -> bytes:
    return zipped({"word/document.xml": b"<w:document xmlns:w='w'>" + b"A" * 800 * _MIB})


def _many_attributes() -> bytes:
    return docx("<w:p " + " ".join(f'a{number}="1"' for number in range(2_000_000)) + "/>" + p("hello"))


DOCUMENTS: Final[dict[str, tuple[DocumentFormat, DocumentMaker]]] = {
    "DOCX: 800 MiB in a part": (DocumentFormat.DOCX, _zip_bomb),
    "DOCX: 150,000 parts": (DocumentFormat.DOCX, lambda: zipped({f"a{number}": b"" for number in range(150_000)})),
    "DOCX: an entity": (DocumentFormat.DOCX, lambda: docx(p("&a;"), declaration='<!DOCTYPE x [<!ENTITY a "ha">]>')),
    "DOCX: 2,000,000 attributes": (
        DocumentFormat.DOCX,
        _many_attributes,
    ),
    "DOCX: 3,000,000 nested paragraphs": (DocumentFormat.DOCX, lambda: docx("<w:p>" * 3_000_000)),
    "DOCX: 300,000 nested tables": (
        DocumentFormat.DOCX,
        lambda: docx("<w:tbl><w:tr><w:tc>" * 300_000 + p("x") + "</w:tc></w:tr></w:tbl>" * 300_000),
    ),
    "DOCX: a spreadsheet": (DocumentFormat.DOCX, lambda: zipped({"xl/workbook.xml": b"<x/>"})),
    "DOCX: another namespace": (DocumentFormat.DOCX, lambda: docx(p("hello"), namespace=f"{W}/other")),
    "PDF: 10,000 pages": (DocumentFormat.PDF, lambda: pdf([page_of(f"Page {number}.") for number in range(10_000)])),
    "PDF: the same page 2,000 times": (DocumentFormat.PDF, _repeated_page),
    "PDF: a stream without end": (
        DocumentFormat.PDF,
        lambda: _one_page(stream(b"BT /F1 11 Tf " + b"(hello) Tj " * 8_000_000)),
    ),
    "PDF: 900 MiB, compressed twice": (DocumentFormat.PDF, _compressed_twice),
    "PDF: 200,000 nested lists": (DocumentFormat.PDF, lambda: _one_page(b"[" * 200_000)),
    "PDF: 100,000 nested dictionaries": (DocumentFormat.PDF, lambda: _one_page(b"<< /A " * 100_000)),
    "PDF: 3,000,000 saved states": (DocumentFormat.PDF, lambda: _one_page(stream(b"q " * 3_000_000))),
    "PDF: nested forms": (DocumentFormat.PDF, _nested_forms),
    "PDF: pages that contain themselves": (
        DocumentFormat.PDF,
        lambda: pdf_of([_ROOT, b"<< /Type /Pages /Count 1 /Kids [2 0 R] >>"]),
    ),
    "PDF: 900,000 empty objects": (DocumentFormat.PDF, lambda: b"%PDF-1.4\n" + b"1 0 obj\n<<>>\nendobj\n" * 900_000),
    "PDF: noise": (DocumentFormat.PDF, lambda: b"%PDF-1.4\n" + random.Random(1).randbytes(_MAX_BYTES - 100)),
    "HTML: nested divs": (DocumentFormat.HTML, _full(b"<div>")),
    "HTML: nested divs with text": (DocumentFormat.HTML, _full(b"<div>a ")),
    "HTML: nested tables": (DocumentFormat.HTML, _full(b"<table><tr><td>")),
    "HTML: 900,000 wide cells": (DocumentFormat.HTML, lambda: b"<table>" + b"<tr><td colspan=100>a" * 900_000),
    "HTML: 5,000,000 attributes": (DocumentFormat.HTML, lambda: b"<div " + b"a=1 " * 5_000_000 + b">hello</div>"),
    **{
        f"HTML: only {piece.decode()}": (DocumentFormat.HTML, _full(piece, b"hello>"))
        for piece in (
            b"<",
            b"&amp",
            b"<!--",
            b'<a href="',
            b"<!a",
            b"<?a",
            b"</a ",
            b"<script>",
            b"<title>",
            b"<svg><![CDATA[",
        )
    },
    "text: line ends": (DocumentFormat.TEXT, _full(b"\n", b"a")),
    "text: one word": (DocumentFormat.TEXT, lambda: b"a" * 4 * _MIB),
    "text: no sentence": (DocumentFormat.TEXT, lambda: b"word " * 900_000),
    "text: only ends of sentences": (DocumentFormat.TEXT, lambda: b". " * 2_400_000 + b"a"),
    "text: 2,000,000 accents": (DocumentFormat.TEXT, lambda: b"a" + b"\xcc\x81" * 2_000_000),
    "text: a character that folds to 18": (DocumentFormat.TEXT, lambda: "\ufdfa".encode() * 1_000_000),
    "text: noise": (DocumentFormat.TEXT, lambda: random.Random(2).randbytes(_MIB)),
    "CSV: a cell of 900,000 words": (DocumentFormat.CSV, lambda: b"name,text\nA," + b"word " * 900_000),
    "CSV: 100,000 columns": (
        DocumentFormat.CSV,
        lambda: b",".join(b"c%d" % n for n in range(100_000)) + b"\n" + b"x," * 100_000,
    ),
    "CSV: an unterminated quote": (DocumentFormat.CSV, lambda: b'a,b\n1,"2\n' + b"x,y\n" * 1_000_000),
    "CSV: commas": (DocumentFormat.CSV, _full(b",", b"\n")),
    "CSV: quotes": (DocumentFormat.CSV, _full(b'"', b"\n")),
    "JSON: 10,000 levels": (DocumentFormat.JSON, lambda: b"[" * 10_000 + b"]" * 10_000),
    "JSON: 5,000,000 empty lists": (DocumentFormat.JSON, lambda: b"[" + b"[]," * 5_000_000 + b"[]]"),
    "JSON: a number of 5,000,000 digits": (DocumentFormat.JSON, lambda: b"[" + b"1" * 5_000_000 + b"]"),
    "JSON: names of a megabyte": (DocumentFormat.JSON, lambda: (b'{"' + b"k" * _MIB + b'":') * 3 + b'"hello"}}}'),
    **{
        f"Markdown: only {piece.decode()}": (DocumentFormat.MARKDOWN, _times(piece, 1_000_000))
        for piece in (b">", b"[", b"*a ", b"_a__", b"[a](<b", b"<div>", b"|a|b|\n")
    },
}


async def _read_all(folder: Path, text: str) -> int:
    """Reads the documents whose name contains `text` and prints a line for each. Returns the number of internal
    errors."""
    errors = 0
    path = folder / "file"
    for name, (document_format, make) in DOCUMENTS.items():
        if text not in name:
            continue
        await asyncio.to_thread(path.write_bytes, make()[:_MAX_BYTES])
        began_s, cpu_s = time.monotonic(), _children_cpu_s()
        try:
            outcome = f"{len(await extract(path, document_format, ReadLimits())):,} passages"
        except UnreadableDocument as unreadable:
            outcome = unreadable.message
            errors += outcome == BROKEN
        cpu_s, elapsed_s = _children_cpu_s() - cpu_s, time.monotonic() - began_s
        print(f"| {name} | {cpu_s:.1f} | {elapsed_s:.1f} | {outcome} |", flush=True)
    return errors


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main(text: str = "") -> int:
    """Reads the documents whose name contains `text`. Returns the exit status: 1 if there was an internal error."""
    logs.configure("error", "console")
    print("| document | CPU, s | time, s | outcome |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        return min(1, asyncio.run(_read_all(Path(folder), text)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
