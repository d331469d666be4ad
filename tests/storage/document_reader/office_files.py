"""Builders of PDF and DOCX files, valid and hostile ones."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

W: Final = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_RELATIONS: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE: Final = "http://schemas.openxmlformats.org/package/2006/relationships"


class Painted(NamedTuple):
    """A line on a PDF page: points from the left and from the bottom, size in points."""

    text: str
    x: int
    y: int
    size: int = 11


def pdf(pages: Sequence[Sequence[Painted]], *, compressed: bool = True) -> bytes:
    """A PDF with text in Helvetica (PDF 32000-1, annex H.3 is the example)."""
    kids = [4 + 2 * number for number in range(len(pages))]
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for kid, lines in zip(kids, pages, strict=True):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % (kid + 1)
        )
        objects.append(stream(_painting(lines), compressed=compressed))
    return pdf_of(objects)


def stream(content: bytes, *, compressed: bool = True) -> bytes:
    """A stream object."""
    if not compressed:
        return b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)
    packed = zlib.compress(content, 9)
    return b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(packed), packed)


def pdf_of(objects: Sequence[bytes]) -> bytes:
    """A PDF file of these objects, numbered from 1; the first is its catalogue."""
    file = bytearray(b"%PDF-1.4\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(file))
        file += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    file += b"".join(b"%010d 00000 n \n" % place for place in places)
    file += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(file)


def _painting(lines: Sequence[Painted]) -> bytes:
    painted = bytearray(b"BT\n")
    for line in lines:
        text = line.text.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
        painted += b"/F1 %d Tf 1 0 0 1 %d %d Tm (%s) Tj\n" % (line.size, line.x, line.y, text)
    return bytes(painted + b"ET")


def page_of(text: str, *, size: int = 11) -> list[Painted]:
    """A page with one line for each line of `text`."""
    return [Painted(line, 50, 780 - 16 * number, size) for number, line in enumerate(text.splitlines())]


HEADINGS: Final = "".join(
    f'<w:style w:type="paragraph" w:styleId="{style}"><w:name w:val="{name}"/></w:style>'
    for style, name in (("Titel", "Title"), ("berschrift1", "heading 1"), ("berschrift2", "heading 2"))
)


def docx(body: str, *, styles: str = HEADINGS, notes: str = "", declaration: str = "", namespace: str = W) -> bytes:
    """A DOCX file with this WordprocessingML in its body; `declaration` comes before the root element."""
    parts = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": _relations("", {"officeDocument": "word/document.xml"}),
        "word/_rels/document.xml.rels": _relations(
            "word", {"styles": "styles.xml", "footnotes": "/word/footnotes.xml", "hyperlink": "http://127.0.0.1/styles"}
        ),
        "word/document.xml": f'{declaration}<w:document xmlns:w="{namespace}"><w:body>{body}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{namespace}">{styles}</w:styles>',
        "word/footnotes.xml": f'<w:footnotes xmlns:w="{namespace}">{notes}</w:footnotes>',
    }
    return zipped({name: text.encode() for name, text in parts.items()})


def _relations(folder: str, targets: dict[str, str]) -> str:
    outside = ' TargetMode="External"'
    entries = "".join(
        f'<Relationship Id="{folder}{kind}" Type="{_RELATIONS}/{kind}" Target="{target}"'
        f"{outside if '://' in target else ''}/>"
        for kind, target in targets.items()
    )
    return f'<Relationships xmlns="{_PACKAGE}">{entries}</Relationships>'


def zipped(parts: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression, compresslevel=9) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def p(text: str, style: str = "", *, properties: str = "") -> str:
    """A paragraph of WordprocessingML."""
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{named}{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def tbl(rows: Sequence[Sequence[str]], *, properties: str = "", first_row: str = "") -> str:
    """A table; cells are texts, or XML when they begin with `<`."""
    lines = ["".join(f"<w:tc>{cell if cell.startswith('<') else p(cell)}</w:tc>" for cell in cells) for cells in rows]
    marked = [f"<w:tr>{first_row if not number else ''}{line}</w:tr>" for number, line in enumerate(lines)]
    return f"<w:tbl><w:tblPr>{properties}</w:tblPr>{''.join(marked)}</w:tbl>"
