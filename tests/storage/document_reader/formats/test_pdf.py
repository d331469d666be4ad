"""Text of PDF files; hostile and damaged ones are rejected."""

from __future__ import annotations

import io
import zlib
from typing import Final

import pypdf
import pytest

from storage.document_reader.base.blocks import Block, heading, paragraph
from storage.document_reader.base.errors import NO_TEXT, TOO_DEEP, UnreadableDocument
from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.base.media_types import DocumentFormat
from storage.document_reader.formats.pdf import BEYOND_LIMITS, DAMAGED, ENCRYPTED
from storage.document_reader.reader import read_blocks
from tests.storage.document_reader.office_files import Painted, page_of, pdf, pdf_of, stream


def read(data: bytes, limits: ReadLimits | None = None) -> list[Block]:
    return list(read_blocks(data, DocumentFormat.PDF, limits or ReadLimits()))


def unreadable_message(data: bytes, limits: ReadLimits | None = None) -> str:
    with pytest.raises(UnreadableDocument) as raised:
        read(data, limits)
    return raised.value.message


def encrypted(user_password: str, algorithm: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf([page_of("A secret.")])))
    writer.encrypt(user_password, "owner", algorithm=algorithm)
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


@pytest.mark.parametrize("compressed", [True, False])
def test_lines_become_paragraphs(compressed: bool) -> None:
    lines = [
        "The clinic is open on every day of the week, from nine in the mor-",
        "ning to six in the evening. Please call before you come here (or",
        "write); there may be a queue.",
        "Parking is free for visitors, and the garage is open all through",
        "the night \u2014 caf\xe9 included.",
    ]
    assert read(pdf([page_of("\n".join(lines))], compressed=compressed)) == [
        paragraph(
            "The clinic is open on every day of the week, from nine in the morning to six in the evening. Please call"
            " before you come here (or write); there may be a queue."
        ),
        paragraph(
            "Parking is free for visitors, and the garage is open all through the night \u2014 caf\xe9 included."
        ),
    ]


def test_heading_levels_follow_font_sizes() -> None:
    page = [
        Painted("Handbook", 50, 800, 24),
        Painted("Opening", 50, 760, 16), Painted("hours", 50, 742, 16),
        Painted("We open at nine and close at six, on Sundays too, all the year.", 50, 710),
        Painted("Prices", 50, 680, 16),
        Painted("Tea is two euros.", 50, 650),
    ]  # fmt: skip
    assert read(pdf([page])) == [
        heading("Handbook", 1),
        heading("Opening hours", 2),
        paragraph("We open at nine and close at six, on Sundays too, all the year."),
        heading("Prices", 2),
        paragraph("Tea is two euros."),
    ]


def test_a_gap_or_a_list_mark_begins_a_paragraph() -> None:
    heights = {"We offer": 700, "- haircuts": 684, "- shaves": 668, "Please": 620, "call": 604}
    page = [Painted(text, 50, height) for text, height in heights.items()]
    assert [block.text for block in read(pdf([page]))] == ["We offer", "- haircuts", "- shaves", "Please call"]


def test_running_heads_and_page_numbers_are_left_out() -> None:
    pages = [
        [
            Painted("Handbook of the clinic", 50, 820),
            Painted(f"Part {number} tells of room {number * 7}.", 50, 700),
            Painted(f"- {number} -", 300, 30),
        ]
        for number in range(1, 6)
    ]
    text = " ".join(block.text for block in read(pdf(pages)))
    assert text == " ".join(f"Part {number} tells of room {number * 7}." for number in range(1, 6))


def test_a_paragraph_continues_on_the_next_page() -> None:
    pages = [[Painted("The garage is open", 50, 60)], [Painted("all through the night.", 50, 780)]]
    assert read(pdf(pages)) == [paragraph("The garage is open all through the night.")]


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-128", "AES-256"])
def test_a_pdf_with_a_password_is_encrypted(algorithm: str) -> None:
    assert unreadable_message(encrypted("s3cret", algorithm)) == ENCRYPTED
    assert read(encrypted("", algorithm)) == [paragraph("A secret.")]


def test_a_pdf_of_pictures_has_no_text() -> None:
    assert unreadable_message(pdf([[], []])) == NO_TEXT
    assert unreadable_message(pdf([])) == NO_TEXT


def test_too_many_pages_are_refused() -> None:
    pages = pdf([page_of("One.")] * 3)
    assert read(pages, ReadLimits(pages=3))
    assert unreadable_message(pages, ReadLimits(pages=2)) == "The PDF has more than 2 pages"


PAGE: Final = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> %s >> >>"
)
CATALOG: Final = b"<< /Type /Catalog /Pages 2 0 R >>"
FONT: Final = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
TREE: Final = b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>"
TWICE: Final = zlib.compress(zlib.compress(bytes(100_000_000), 1), 9)

HOSTILE: Final = {
    "a header alone": b"%PDF-1.7\n",
    "cut in the middle": pdf([page_of("Some text.")])[:300],
    "no catalogue": pdf_of([b"<< >>"]),
    "a page tree that holds itself": pdf_of([CATALOG, b"<< /Type /Pages /Count 1 /Kids [2 0 R] >>"]),
    "a page tree of two that hold each other": pdf_of(
        [CATALOG, b"<< /Type /Pages /Count 9 /Kids [3 0 R] >>", b"<< /Type /Pages /Count 9 /Kids [2 0 R 2 0 R] >>"]
    ),
    "a page that is its own parent": pdf_of([CATALOG, TREE, b"<< /Type /Page /Parent 3 0 R /Contents 3 0 R >>"]),
    "a reference to itself": pdf_of([CATALOG, b"2 0 R"]),
    "a thousand arrays in each other": pdf_of([CATALOG, b"[" * 100_000 + b"]" * 100_000]),
    "a thousand dictionaries in each other": pdf_of([CATALOG, b"<</A" * 50_000 + b">>" * 50_000]),
    "a length that lies": pdf_of(
        [CATALOG, TREE, PAGE % b"", b"<< /Length 99999999 >>\nstream\nBT ET\nendstream", FONT]
    ),
    "a stream packed twice that unpacks to too much": pdf_of(
        [CATALOG, TREE, PAGE % b"", b"<< /Filter [/FlateDecode /FlateDecode] /Length %d >>\nstream\n%s\nendstream"
         % (len(TWICE), TWICE), FONT]
    ),
    "a form that paints itself": pdf_of(
        [CATALOG, TREE, PAGE % b"/XObject << /X 6 0 R >>", stream(b"/X Do"), FONT,
         b"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 6 0 R >> >> /Length 5 >>\n"
         b"stream\n/X Do\nendstream"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pdf_is_refused(name: str) -> None:
    assert unreadable_message(HOSTILE[name]) in (DAMAGED, NO_TEXT, TOO_DEEP, BEYOND_LIMITS)


def test_a_cyclic_xref_table_is_read() -> None:
    file = pdf([page_of("Some text.")])
    table = file.rindex(b"xref\n0")
    looped = file.replace(b"trailer <<", b"trailer << /Prev %d" % table)
    assert read(looped) == [paragraph("Some text.")]


def test_a_stream_that_unpacks_to_too_much_is_refused() -> None:
    bomb = pdf_of([CATALOG, TREE, PAGE % b"", stream(bytes(120_000_000)), FONT])
    assert len(bomb) < 200_000
    assert unreadable_message(bomb) == BEYOND_LIMITS
