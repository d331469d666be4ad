"""Text of DOCX files; hostile and damaged ones are rejected."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from itertools import pairwise
from typing import Final

import pytest

from storage.document_reader.base.blocks import Block, heading, paragraph, row
from storage.document_reader.base.errors import NO_TEXT, TOO_MUCH_DATA, UnreadableDocument
from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.base.media_types import DocumentFormat
from storage.document_reader.formats.docx import DAMAGED, NO_DOCX, OLD_OR_ENCRYPTED
from storage.document_reader.reader import read_blocks
from tests.storage.document_reader.office_files import HEADINGS, docx, p, tbl, zipped

MEBIBYTE: Final = 2**20


def read(data: bytes, limits: ReadLimits | None = None) -> list[Block]:
    return list(read_blocks(data, DocumentFormat.DOCX, limits or ReadLimits()))


def unreadable_message(data: bytes, limits: ReadLimits | None = None) -> str:
    with pytest.raises(UnreadableDocument) as raised:
        read(data, limits)
    return raised.value.message


def test_headings_are_found_by_style_or_level_in_any_language() -> None:
    own = '<w:style w:type="paragraph" w:styleId="Own"><w:name w:val="Own"/><w:basedOn w:val="berschrift2"/></w:style>'
    loop = '<w:style w:styleId="Loop"><w:name w:val="Loop"/><w:basedOn w:val="Loop"/></w:style>'
    body = "".join(
        [
            p("Handbook", "Titel"), p("Hours", "berschrift1"), p("Summer", "Own"), p("Nine to five.", "Loop"),
            p("Winter", properties='<w:outlineLvl w:val="1"/>'), p("Ten.", "Unknown"),
            p("Not one", "berschrift1", properties='<w:outlineLvl w:val="9"/>'),
        ]
    )  # fmt: skip
    assert read(docx(body, styles=HEADINGS + own + loop)) == [
        heading("Handbook", 0),
        heading("Hours", 1),
        heading("Summer", 2),
        paragraph("Nine to five."),
        heading("Winter", 2),
        paragraph("Ten."),
        heading("Not one", 1),
    ]


def test_runs_make_a_paragraph_without_fields_and_deleted_text() -> None:
    body = (
        '<w:p><w:r><w:t>Open</w:t></w:r><w:r><w:t xml:space="preserve">ed at </w:t></w:r>'
        "<w:ins><w:r><w:t>nine</w:t></w:r></w:ins><w:del><w:r><w:delText>ten</w:delText><w:t>ten</w:t></w:r></w:del>"
        "<w:r><w:tab/><w:t>sharp</w:t><w:br/><w:t>daily</w:t><w:noBreakHyphen/><w:t>ish</w:t></w:r>"
        "<w:r><w:instrText>PAGE</w:instrText></w:r><w:hyperlink><w:r><w:t>, call</w:t></w:r></w:hyperlink></w:p>"
    )
    assert read(docx(body)) == [paragraph("Opened at nine sharp\ndaily-ish, call")]


def test_a_text_box_is_read_once() -> None:
    box = "<w:txbxContent>" + p("In the box.") + "</w:txbxContent>"
    body = (
        '<w:p xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><w:r><w:t>Around it.</w:t></w:r>'
        f"<mc:AlternateContent><mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback></mc:AlternateContent></w:p>"
    )
    assert read(docx(body)) == [paragraph("In the box."), paragraph("Around it.")]


def test_a_table_with_a_header_repeats_its_names() -> None:
    rows = [["Item", "Price"], ["Tea", "2"], ["Milk", ""]]
    header = "<w:trPr><w:tblHeader/></w:trPr>"
    assert read(docx(p("Prices") + tbl(rows, first_row=header))) == [
        paragraph("Prices"),
        row(["Item", "Price"], ["Tea", "2"]),
        row(["Item"], ["Milk"]),
    ]


@pytest.mark.parametrize("flag", ['w:firstRow="1"', 'w:val="04A0"'])
def test_a_special_first_row_is_a_header_unless_the_table_is_one_of_names_and_values(flag: str) -> None:
    properties = f"<w:tblLook {flag}/>"
    wide = [["Day", "From", "To"], ["Mon", "9", "5"]]
    assert read(docx(tbl(wide, properties=properties))) == [row(["Day", "From", "To"], ["Mon", "9", "5"])]
    narrow = [["Mon", "9-5"], ["Tue", "9-6"]]
    assert read(docx(tbl(narrow, properties=properties))) == [row([], cells) for cells in narrow]


def test_merged_cells_are_read_in_each_of_their_rows() -> None:
    first = "<w:tcPr><w:vMerge w:val='restart'/></w:tcPr>" + p("Monday")
    below = "<w:tcPr><w:vMerge/></w:tcPr>" + p("")
    wide = '<w:tcPr><w:gridSpan w:val="2"/></w:tcPr>' + p("all day")
    body = tbl([["Day", "From", "To"], [first, "9", "12"], [below, wide]], first_row="<w:trPr><w:tblHeader/></w:trPr>")
    assert read(docx(body)) == [
        row(["Day", "From", "To"], ["Monday", "9", "12"]),
        row(["Day", "From"], ["Monday", "all day"]),
    ]


@pytest.mark.parametrize(
    "span", ["123456x", "9" * 5000, "-1", "0", "", "x", "٣", "+2", " 2 ", "1000000", "0" * 100_000 + "x"]
)
def test_a_cell_with_an_invalid_span_is_read(span: str) -> None:
    wide = f'<w:tcPr><w:gridSpan w:val="{span}"/></w:tcPr>' + p("all day")
    assert read(docx(tbl([["Day", "From", "To"], [wide, "x"]])))[1] == row([], ["all day", "x"])


def test_the_padding_of_wide_cells_is_limited() -> None:
    """2.5 million cells would take 20 MB."""
    wide = '<w:tcPr><w:gridSpan w:val="100"/></w:tcPr>' + p("x")
    data = docx(tbl([[wide] * 10] * 2500))
    tracemalloc.start()
    try:
        blocks = read(data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 15 * MEBIBYTE
    assert len(blocks) == 2500
    assert blocks[-1] == row([], ["x"] * 10)


def test_a_table_in_a_cell_is_part_of_the_cell() -> None:
    inner = p("see:") + tbl([["a", "b"]])
    assert read(docx(tbl([["left", inner]]))) == [row([], ["left", "see: a; b"])]


def test_notes_come_at_the_end_and_both_conformance_classes_are_read() -> None:
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    for file in (docx(p("Body."), notes=p("A note.")), docx(p("Body."), notes=p("A note."), namespace=strict)):
        assert read(file) == [paragraph("Body."), paragraph("A note.")]


def test_a_document_without_styles_and_relations_is_read() -> None:
    document = b'<d:document xmlns:d="http://schemas.openxmlformats.org/wordprocessingml/2006/main">%s</d:document>'
    text = b"<d:p><d:r><d:t>Here.</d:t></d:r></d:p>"
    assert read(zipped({"word/document.xml": document % text})) == [paragraph("Here.")]


LAUGHS: Final = "".join(
    [
        "<!DOCTYPE l [<!ENTITY a 'ha'>",
        *(f"<!ENTITY {name} '{f'&{before};' * 10}'>" for before, name in pairwise("abcdefghi")),
        "]>",
    ]
)
OUTSIDE: Final = "<!DOCTYPE x [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>"


@pytest.mark.parametrize(("declaration", "body"), [(LAUGHS, p("&i;")), (OUTSIDE, p("&x;")), ("<!DOCTYPE x>", p("x"))])
def test_entities_are_refused(declaration: str, body: str) -> None:
    assert unreadable_message(docx(body, declaration=declaration)) == "The DOCX file holds a document type declaration"


def test_a_zip_bomb_is_refused() -> None:
    limits = ReadLimits(unpacked_bytes=20 * MEBIBYTE)
    for bomb in (docx(p("x") + " " * (30 * MEBIBYTE)), docx(p("x"), styles=" " * (30 * MEBIBYTE))):
        assert len(bomb) < MEBIBYTE / 16
        assert unreadable_message(bomb, limits) == TOO_MUCH_DATA


def test_declared_sizes_of_a_zip_file_are_not_trusted() -> None:
    file = docx(p("Some text. " * 1000))
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        size = archive.getinfo("word/document.xml").file_size
    liar = file.replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert liar != file
    assert unreadable_message(liar) == DAMAGED


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unusual_compression_is_refused(compression: int) -> None:
    assert unreadable_message(zipped({"word/document.xml": b"<x/>"}, compression)) == DAMAGED


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04" + bytes(100),
        docx(p("Some text."))[:-40],
        docx(p("Some text."))[:200],
        docx("<w:p>"),
        docx("<w:p></w:r>"),
        docx(p("&undefined;")),
        docx(p("\x01")),
    ],
    ids=[
        "a header",
        "cut off",
        "half",
        "unclosed",
        "wrongly closed",
        "an entity",
        "a control",
    ],
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    assert unreadable_message(data) == DAMAGED


def test_another_format_in_a_zip_file_is_no_docx() -> None:
    assert unreadable_message(zipped({"mimetype": b"application/epub+zip"})) == NO_DOCX
    assert unreadable_message(zipped({"xl/workbook.xml": b"<workbook/>"})) == NO_DOCX


def test_an_old_or_encrypted_file_is_named() -> None:
    assert unreadable_message(bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600)) == OLD_OR_ENCRYPTED


def test_a_document_of_pictures_has_no_text() -> None:
    assert unreadable_message(docx("<w:p><w:r><w:drawing/></w:r></w:p>")) == NO_TEXT


def test_deep_nesting_is_read() -> None:
    deep = "<w:tbl><w:tr><w:tc>" * 20_000 + p("Deep.") + "</w:tc></w:tr></w:tbl>" * 20_000
    assert read(docx(deep)) == [row([], ["Deep."])]
