"""Hostile and odd files, each read as an upload is: `python -m bench.knowledge.document_reading`.

Each must end with passages or with a reason that its sender understands, and leave no process; "The file could not be
read" is for faults of ours, and fails the run.
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
_MOST: Final = 20 * _MIB
_PAGE: Final = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R /Resources << %s >> >>"
_FONT: Final = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
_ROOT: Final = b"<< /Type /Catalog /Pages 2 0 R >>"
Make = Callable[[], bytes]


def _full(piece: bytes, end: bytes = b"hello") -> Make:
    """20 MiB of a piece, and some text behind it."""
    return lambda: piece * ((_MOST - len(end)) // len(piece)) + end


def _times(piece: bytes, count: int) -> Make:
    return lambda: piece * count


def _one_page(content: bytes) -> bytes:
    pages = b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>"
    return pdf_of([_ROOT, pages, _FONT, _PAGE % (5, b"/Font << /F1 3 0 R >>"), content])


def _twice_packed() -> bytes:
    packed = zlib.compress(zlib.compress(b" " * (900 * _MIB), 9), 9)
    start = b"<< /Filter [/FlateDecode /FlateDecode] /Length %d >>\nstream\n" % len(packed)
    return _one_page(start + packed + b"\nendstream")


def _forms_in_forms() -> bytes:
    """Twelve forms, each of which paints the next ten times."""

    def form(number: int, content: bytes) -> bytes:
        packed = zlib.compress(content)
        inside = b"/XObject << /X %d 0 R >> /Font << /F1 6 0 R >>" % number
        start = b"<< /Type /XObject /Subtype /Form /BBox [0 0 1 1] /Resources << %s >> /Filter /FlateDecode" % inside
        return start + b" /Length %d >>\nstream\n%s\nendstream" % (len(packed), packed)

    again = b"/X Do " * 10
    pages = b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>"
    first = [_ROOT, pages, _PAGE % (4, b"/XObject << /X 5 0 R >>"), stream(again), form(7, again), _FONT]
    return pdf_of([*first, *(form(8 + place, again) for place in range(12)), form(99, b"BT /F1 9 Tf (ha) Tj ET")])


def _one_page_often() -> bytes:
    """Two thousand times the same page of a hundred thousand words."""
    pages = b"<< /Type /Pages /Count 2000 /Kids [%s] >>" % (b"3 0 R " * 2000)
    words = stream(b"BT /F1 11 Tf " + b"1 0 0 1 50 700 Tm (hello) Tj " * 100_000)
    return pdf_of([_ROOT, pages, _PAGE % (4, b"/Font << /F1 5 0 R >>"), words, _FONT])


def _bomb() -> bytes:
    return zipped({"word/document.xml": b"<w:document xmlns:w='w'>" + b"A" * 800 * _MIB})


def _many_attributes() -> bytes:
    return docx("<w:p " + " ".join(f'a{number}="1"' for number in range(2_000_000)) + "/>" + p("hello"))


FILES: Final[dict[str, tuple[DocumentFormat, Make]]] = {
    "DOCX: 800 MiB in a part": (DocumentFormat.DOCX, _bomb),
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
    "PDF: the same page 2,000 times": (DocumentFormat.PDF, _one_page_often),
    "PDF: a stream without end": (
        DocumentFormat.PDF,
        lambda: _one_page(stream(b"BT /F1 11 Tf " + b"(hello) Tj " * 8_000_000)),
    ),
    "PDF: 900 MiB, packed twice": (DocumentFormat.PDF, _twice_packed),
    "PDF: 200,000 nested lists": (DocumentFormat.PDF, lambda: _one_page(b"[" * 200_000)),
    "PDF: 100,000 nested dictionaries": (DocumentFormat.PDF, lambda: _one_page(b"<< /A " * 100_000)),
    "PDF: 3,000,000 saved states": (DocumentFormat.PDF, lambda: _one_page(stream(b"q " * 3_000_000))),
    "PDF: forms in forms": (DocumentFormat.PDF, _forms_in_forms),
    "PDF: pages that hold themselves": (
        DocumentFormat.PDF,
        lambda: pdf_of([_ROOT, b"<< /Type /Pages /Count 1 /Kids [2 0 R] >>"]),
    ),
    "PDF: 900,000 empty objects": (DocumentFormat.PDF, lambda: b"%PDF-1.4\n" + b"1 0 obj\n<<>>\nendobj\n" * 900_000),
    "PDF: noise": (DocumentFormat.PDF, lambda: b"%PDF-1.4\n" + random.Random(1).randbytes(_MOST - 100)),
    "HTML: nested divs": (DocumentFormat.HTML, _full(b"<div>")),
    "HTML: nested divs with text": (DocumentFormat.HTML, _full(b"<div>a ")),
    "HTML: nested tables": (DocumentFormat.HTML, _full(b"<table><tr><td>")),
    "HTML: 900,000 wide cells": (DocumentFormat.HTML, lambda: b"<table>" + b"<tr><td colspan=100>a" * 900_000),
    "HTML: 5,000,000 attributes": (DocumentFormat.HTML, lambda: b"<div " + b"a=1 " * 5_000_000 + b">hello</div>"),
    **{
        f"HTML: nothing but {piece.decode()}": (DocumentFormat.HTML, _full(piece, b"hello>"))
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
    "text: nothing but ends of sentences": (DocumentFormat.TEXT, lambda: b". " * 2_400_000 + b"a"),
    "text: 2,000,000 accents": (DocumentFormat.TEXT, lambda: b"a" + b"\xcc\x81" * 2_000_000),
    "text: a character that folds to 18": (DocumentFormat.TEXT, lambda: "\ufdfa".encode() * 1_000_000),
    "text: noise": (DocumentFormat.TEXT, lambda: random.Random(2).randbytes(_MIB)),
    "CSV: a cell of 900,000 words": (DocumentFormat.CSV, lambda: b"name,text\nA," + b"word " * 900_000),
    "CSV: 100,000 columns": (
        DocumentFormat.CSV,
        lambda: b",".join(b"c%d" % n for n in range(100_000)) + b"\n" + b"x," * 100_000,
    ),
    "CSV: a quote that does not end": (DocumentFormat.CSV, lambda: b'a,b\n1,"2\n' + b"x,y\n" * 1_000_000),
    "CSV: commas": (DocumentFormat.CSV, _full(b",", b"\n")),
    "CSV: quotes": (DocumentFormat.CSV, _full(b'"', b"\n")),
    "JSON: 10,000 levels": (DocumentFormat.JSON, lambda: b"[" * 10_000 + b"]" * 10_000),
    "JSON: 5,000,000 empty lists": (DocumentFormat.JSON, lambda: b"[" + b"[]," * 5_000_000 + b"[]]"),
    "JSON: a number of 5,000,000 digits": (DocumentFormat.JSON, lambda: b"[" + b"1" * 5_000_000 + b"]"),
    "JSON: names of a megabyte": (DocumentFormat.JSON, lambda: (b'{"' + b"k" * _MIB + b'":') * 3 + b'"hello"}}}'),
    **{
        f"Markdown: nothing but {piece.decode()}": (DocumentFormat.MARKDOWN, _times(piece, 1_000_000))
        for piece in (b">", b"[", b"*a ", b"_a__", b"[a](<b", b"<div>", b"|a|b|\n")
    },
}


async def _faults(folder: Path, wanted: str) -> int:
    """Read them, print a line for each, and count those that are faults of ours."""
    faults = 0
    path = folder / "file"
    for name, (kind, make) in FILES.items():
        if wanted not in name:
            continue
        await asyncio.to_thread(path.write_bytes, make()[:_MOST])
        begun, used = time.monotonic(), _used()
        try:
            outcome = f"{len(await extract(path, kind, ReadLimits())):,} passages"
        except UnreadableDocument as unreadable:
            outcome = unreadable.message
            faults += outcome == BROKEN
        print(f"| {name} | {_used() - used:.1f} | {time.monotonic() - begun:.1f} | {outcome} |", flush=True)
    return faults


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(wanted: str = "") -> int:
    """Those whose name holds `wanted`."""
    logs.configure("error", "console")
    print("| file | processor time, s | time, s | outcome |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        return min(1, asyncio.run(_faults(Path(folder), wanted)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
