"""Text of text formats, in every encoding, in reading order."""

# ruff: noqa: RUF001 (sayings in many alphabets look like each other)

from __future__ import annotations

import json
import random
import time

import pytest

from storage.document_reader.base.blocks import Block, heading, paragraph, row
from storage.document_reader.base.encoding import NOT_TEXT, decode
from storage.document_reader.base.errors import NO_TEXT, TOO_DEEP, UnreadableDocument
from storage.document_reader.base.limits import ReadLimits
from storage.document_reader.base.media_types import DocumentFormat, charset_of, format_of
from storage.document_reader.reader import read_blocks


def read(content: str | bytes, kind: DocumentFormat, charset: str | None = None) -> list[Block]:
    data = content.encode() if isinstance(content, str) else content
    return list(read_blocks(data, kind, ReadLimits(), charset))


def unreadable_message(content: str | bytes, kind: DocumentFormat, limits: ReadLimits | None = None) -> str:
    data = content.encode() if isinstance(content, str) else content
    with pytest.raises(UnreadableDocument) as raised:
        list(read_blocks(data, kind, limits or ReadLimits()))
    return raised.value.message


@pytest.mark.parametrize(
    ("mime_type", "kind"),
    [
        ("text/plain", DocumentFormat.TEXT),
        ("text/plain; charset=utf-8", DocumentFormat.TEXT),
        (" Text/Markdown ;charset=UTF-8", DocumentFormat.MARKDOWN),
        ("text/x-markdown", DocumentFormat.MARKDOWN),
        ("application/xhtml+xml", DocumentFormat.HTML),
        ("text/csv;header=present", DocumentFormat.CSV),
        ("APPLICATION/JSON", DocumentFormat.JSON),
        ("application/pdf", DocumentFormat.PDF),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", DocumentFormat.DOCX),
        ("application/msword", None),
        ("image/png", None),
        ("text", None),
        ("", None),
    ],
)
def test_a_media_type_selects_the_format_regardless_of_case_and_parameters(
    mime_type: str, kind: DocumentFormat | None
) -> None:
    assert format_of(mime_type) is kind


@pytest.mark.parametrize(
    ("mime_type", "charset"),
    [
        ("text/plain", None),
        ('text/plain; charset="ISO-8859-1"', "ISO-8859-1"),
        ("text/plain; x=y ; Charset = koi8-r ", "koi8-r"),
        ("text/plain; charset=", None),
        ("text/plain; charset", None),
    ],
)
def test_the_charset_parameter_is_found(mime_type: str, charset: str | None) -> None:
    assert charset_of(mime_type) == charset


SAYINGS = {
    "German": ("Grüße aus München! Täglich von 9 bis 18 Uhr geöffnet, außer sonntags.", "cp1252 iso8859-15"),
    "French": ("Les élèves sont déjà à l'école; où êtes-vous né, près de la forêt ?", "cp1252 iso8859-1"),
    "Spanish": ("¿Dónde está la estación? Mañana abriremos más temprano que ayer.", "cp1252"),
    "Polish": ("Zażółć gęślą jaźń. Otwarte codziennie od dziewiątej, także w święta.", "cp1250 iso8859-2"),
    "Russian": ("Мы открыты каждый день с девяти до шести, кроме воскресенья.", "cp1251 koi8-r cp866"),
    "Greek": ("Είμαστε ανοιχτά κάθε μέρα από τις εννέα έως τις έξι.", "cp1253 iso8859-7"),
    "Turkish": ("Her gün dokuzdan altıya kadar açığız, pazar günleri kapalıyız.", "cp1254"),
    "Hebrew": ("אנחנו פתוחים כל יום מתשע עד שש, חוץ מיום ראשון.", "cp1255"),
    "Japanese": ("毎日午前九時から午後六時まで営業しています。日曜日は休みです。", "shift_jis euc_jp iso2022_jp"),
    "Chinese": ("我们每天上午九点到下午六点营业，星期日休息。欢迎来电咨询。", "gb18030"),
    "Korean": ("매일 오전 아홉 시부터 오후 여섯 시까지 영업합니다. 일요일은 쉽니다.", "euc_kr"),
    "Thai": ("เราเปิดทุกวันตั้งแต่เก้าโมงถึงหกโมงเย็น ยกเว้นวันอาทิตย์", "cp874"),
}
UNICODE = "utf-8 utf-8-sig utf-16 utf-16-le utf-16-be utf-32"


@pytest.mark.parametrize("language", SAYINGS)
def test_the_encoding_of_a_text_is_detected(language: str) -> None:
    text, encodings = SAYINGS[language]
    for encoding in f"{UNICODE} {encodings}".split():
        assert decode(text.encode(encoding)) == text, encoding


def test_a_declared_encoding_is_used_unless_the_bytes_contradict_it() -> None:
    text = "Öl"
    assert decode(text.encode("cp850"), "cp850") == text
    assert decode(text.encode("utf-16-le"), "utf-16-le") == text
    assert decode(text.encode(), "cp850") == text
    for nonsense in ("no-such-encoding", "rot13", "zlib", "a\0b", "utf-8"):
        assert decode("Grüße aus dem Süden".encode("cp1252"), nonsense) == "Grüße aus dem Süden"


@pytest.mark.parametrize("text", ["Café 5 €", "Größe", "fermé à midi", "Åpent alle dager", "¿Dónde está?"])
def test_a_few_western_letters_are_not_misread(text: str) -> None:
    assert decode(text.encode("cp1252")) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Да", "utf-16-be"),
        ("料金は二千円です。", "utf-16-le"),
        ("料金は二千円です。", "shift_jis"),
        ("Привет", "cp1251"),
    ],
)
def test_a_short_text_in_another_script_is_read(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == text


def test_damaged_or_cut_utf_8_stays_utf_8() -> None:
    text = "Größe, Höhe, Länge. " * 20
    whole = text.encode()
    assert decode(whole[:-3] + b"\xc3") == text[:-3] + "\ufffd"
    assert decode(whole[:60] + b"\xff" + whole[60:]).count("\ufffd") == 1


def test_binary_data_is_unreadable() -> None:
    assert unreadable_message(random.Random(1).randbytes(10_000), DocumentFormat.TEXT) == NOT_TEXT
    assert unreadable_message(b"RIFF\x1a\n" + bytes(200), DocumentFormat.MARKDOWN) == NOT_TEXT


@pytest.mark.parametrize(
    ("content", "kind", "reason"),
    [
        (b"%PDF-1.7\n1 0 obj", DocumentFormat.HTML, "The file is a PDF; its mimeType says HTML"),
        (b"\n%PDF-1.7\n1 0 obj", DocumentFormat.TEXT, "The file is a PDF; its mimeType says text"),
        (b"PK\x03\x04 and so on", DocumentFormat.PDF, "The file is a zip file, as DOCX is; its mimeType says PDF"),
        (
            b"\x89PNG\r\n\x1a\n" + bytes(200),
            DocumentFormat.MARKDOWN,
            "The file is a picture; its mimeType says Markdown",
        ),
        (rb"{\rtf1\ansi Hello}", DocumentFormat.CSV, "The file is an RTF document; its mimeType says CSV"),
        (b"<html>Hello</html>", DocumentFormat.PDF, "The file is not a PDF"),
        (b"Hello", DocumentFormat.DOCX, "The file is not a DOCX document"),
    ],
)
def test_a_file_of_another_format_than_declared_is_unreadable(
    content: bytes, kind: DocumentFormat, reason: str
) -> None:
    assert unreadable_message(content, kind) == reason


@pytest.mark.parametrize("kind", DocumentFormat)
@pytest.mark.parametrize("content", ["", " \n\t "])
def test_an_empty_file_has_no_text(kind: DocumentFormat, content: str) -> None:
    assert unreadable_message(content, kind) == NO_TEXT


@pytest.mark.parametrize(
    "kind", [DocumentFormat.TEXT, DocumentFormat.MARKDOWN, DocumentFormat.HTML, DocumentFormat.CSV]
)
@pytest.mark.parametrize("content", ["\ufeff", "--- !? ---"])
def test_a_file_without_words_has_no_text(kind: DocumentFormat, content: str) -> None:
    assert unreadable_message(content, kind) == NO_TEXT


def test_text_is_divided_at_empty_lines_and_normalized() -> None:
    text = "Opening\thours\r\nMon  9\u00a0am\r\n \t\r\n\r\nThe o\ufb03ce\u00ad is\u200b closed.\x00\x07\x0cE\u0301cole"
    assert read(text, DocumentFormat.TEXT) == [
        paragraph("Opening hours\nMon 9 am"),
        paragraph("The office is closed."),
        paragraph("École"),
    ]


def test_html_gives_its_visible_text() -> None:
    page = """<!doctype html><html><head><title>The  Clinic</title><style>p { color: red }</style></head><body>
    <script>document.write('<p>never</p>')</script><noscript>never</noscript>
    <h1>Opening <em>hours</em></h1><p>Daily,<br>and on&nbsp;Sundays &amp; holidays. <img src=a.png alt="A door"></p>
    stray words<ul><li>One<li>Two</ul><h2>Prices</h2>
    <table><caption>For adults</caption><tr><th>Item<th>Price<tr><td>Tea<td>2&nbsp;&euro;
    <tr><td colspan=2>Gone</td></tr></table><pre>a
b</pre><svg><text>never</text></svg><p>unclosed"""
    assert read(page, DocumentFormat.HTML) == [
        heading("The Clinic", 0),
        heading("Opening hours", 1),
        paragraph("Daily,\nand on Sundays & holidays. A door"),
        paragraph("stray words"),
        paragraph("- One"),
        paragraph("- Two"),
        heading("Prices", 2),
        paragraph("For adults"),
        row(["Item", "Price"], ["Tea", "2 €"]),
        row(["Item"], ["Gone"]),
        paragraph("a\nb"),
        paragraph("unclosed"),
    ]


def test_a_wide_cell_does_not_shift_the_names_of_the_next() -> None:
    page = (
        "<table><tr><th>Day<th>From<th>To<th>Note<tr><td>Mon<td colspan=2>closed<td>holiday<td colspan=x>more</table>"
    )
    assert [block.text for block in read(page, DocumentFormat.HTML)] == ["Day: Mon; From: closed; Note: holiday; more"]


@pytest.mark.parametrize("corner", ["<td>", "<th>", "<td>&nbsp;</td>"])
def test_a_table_with_an_empty_corner_has_the_names_of_its_columns(corner: str) -> None:
    week = f"<table><tr>{corner}<th>Mon<th>Tue<tr><th>Opens<td>9<td>10</table>"
    assert read(week, DocumentFormat.HTML) == [row(["", "Mon", "Tue"], ["Opens", "9", "10"])]
    for first in ("<td>Day<th>Mon", "<th><td>Mon", "<td><td>Mon"):
        plain = read(f"<table><tr>{first}<tr><td>Opens<td>9</table>", DocumentFormat.HTML)
        assert plain[-1] == row([], ["Opens", "9"]), first


@pytest.mark.parametrize("body", ["</thead><tr>", "<tbody><tr>", "</thead><tbody><tr>"])
def test_the_head_of_a_table_has_the_names_of_its_columns_in_cells_of_any_kind(body: str) -> None:
    week = f"<table><thead><tr><td>Day<td>From{body}<td>Mon<td>nine<tr><td>Tue<td>ten</table>"
    assert [block.text for block in read(week, DocumentFormat.HTML)] == ["Day: Mon; From: nine", "Day: Tue; From: ten"]
    assert read(week.replace("thead", "tbody"), DocumentFormat.HTML)[0] == row([], ["Day", "From"])


def test_a_layout_table_is_no_table() -> None:
    page = """<table><tr><td>Menu<td><h1>Prices</h1><p>In euros.</p>
    <table><tr><th>Item<th>Price</tr><tr><td>Tea<td>2</tr></table>after</td></tr></table>end"""
    assert read(page, DocumentFormat.HTML) == [
        paragraph("Menu"),
        heading("Prices", 1),
        paragraph("In euros."),
        row(["Item", "Price"], ["Tea", "2"]),
        paragraph("after"),
        paragraph("end"),
    ]


def test_broken_html_is_read_as_browsers_do() -> None:
    for page, text in (
        ("<p>one<!-- two <p>three", "one"),
        ("<p>one<!-- <p>two --> three<!----> four", "one three four"),
        ("<p>one<![if IE]> two<![endif]> three<![", "one two three<!["),
        ("<p>1 < 2 &amp & &lt;3 <b", "1 < 2 & & <3 <b"),
        ("<svg><g><svg></svg>two</g></svg>one<svg/> three", "one three"),
        ("</p></td></table>one</b>", "one"),
    ):
        assert [block.text for block in read(page, DocumentFormat.HTML)] == [text], page


def test_a_page_declares_its_own_encoding() -> None:
    text = '<meta http-equiv=content-type content="text/html; charset=windows-1251"><p>Да'
    assert read(text.encode("cp1251"), DocumentFormat.HTML) == [paragraph("Да")]
    assert read(text.encode("cp1251"), DocumentFormat.HTML, "koi8-r") != [paragraph("Да")]


def test_markdown_is_read_without_markup() -> None:
    text = """---
title: "Price list"
---
# The *Clinic*

See [our site](https://example.com), `code` and ![a door](x.png)
on two lines.

Hours
-----
1. first
2. second
   - inner

| Day | Open |
|-----|------|
| Mon | 9-5  |
| Sun |      |

> quoted

```
x = 1
```
<div>Hello <b>there</b></div>
"""
    assert read(text, DocumentFormat.MARKDOWN) == [
        heading("Price list", 0),
        heading("The Clinic", 1),
        paragraph("See our site, code and a door\non two lines."),
        heading("Hours", 2),
        paragraph("1. first"),
        paragraph("2. second"),
        paragraph("- inner"),
        row(["Day", "Open"], ["Mon", "9-5"]),
        row(["Day"], ["Sun"]),
        paragraph("quoted"),
        paragraph("x = 1"),
        paragraph("Hello there"),
    ]


@pytest.mark.parametrize("piece", ["![a](", "[", "![", "[a][", "[[a]", "[a](((", "[a\n", "![a](" * 40 + "\n\n"])
def test_unclosed_brackets_take_linear_time(piece: str) -> None:
    """An opening bracket takes a CommonMark parser tens of microseconds and more."""
    length = {"![a](": 500_000, "[a\n": 100_000}.get(piece, 200_000)
    text = piece * (length // len(piece)) + "\n\nend"
    before = time.process_time()
    blocks = read(text, DocumentFormat.MARKDOWN)
    assert time.process_time() - before < 2.5
    assert blocks[-1] == paragraph("end")


def test_a_file_of_very_many_links_is_read_without_their_addresses() -> None:
    text = "See [our *site*](https://example.com/a), ![a door](x.png) and [this][1].\n\n" * 10_000
    blocks = read(text, DocumentFormat.MARKDOWN)
    assert (len(blocks), set(blocks)) == (10_000, {paragraph("See our site, a door and this.")})


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_each_csv_row_repeats_the_names_with_any_separator(separator: str) -> None:
    rows = [["Name", "Price", "Note"], ["Tea", '"2,50; or so"', '"say ""hi"""'], ["Coffee", "3", ""], ["", "", ""]]
    text = "\r\n".join(separator.join(cells) for cells in rows)
    assert [block.text for block in read(text, DocumentFormat.CSV)] == [
        'Name: Tea; Price: 2,50; or so; Note: say "hi"',
        "Name: Coffee; Price: 3",
    ]


def test_titles_above_a_csv_table_are_headings_and_its_names_are_below_them() -> None:
    sheet = "Price list 2026;;\nHarbour of Ost;;\nName;Unit;Price\nBerth;day;20\n"
    assert read(sheet, DocumentFormat.CSV) == [
        heading("Price list 2026", 0),
        heading("Harbour of Ost", 1),
        row(["Name", "Unit", "Price"], ["Berth", "day", "20"]),
    ]


def test_a_title_above_a_csv_table_needs_no_empty_cells_behind_it() -> None:
    for titles in ("Price list 2026\n\n", "Price list 2026\r\n"):
        assert read(f"{titles}Name,Unit,Price\nBerth,day,20\nCrane,hour,90\n", DocumentFormat.CSV) == [
            heading("Price list 2026", 0),
            row(["Name", "Unit", "Price"], ["Berth", "day", "20"]),
            row(["Name", "Unit", "Price"], ["Crane", "hour", "90"]),
        ]


def test_a_csv_table_with_an_empty_corner_has_the_names_of_its_columns() -> None:
    week = [row(["", "Mon", "Tue"], ["Opens", "9", "10"]), row(["", "Mon", "Tue"], ["Closes", "17", "18"])]
    assert [block.text for block in week] == ["Opens; Mon: 9; Tue: 10", "Closes; Mon: 17; Tue: 18"]
    assert read(",Mon,Tue\nOpens,9,10\nCloses,17,18\n", DocumentFormat.CSV) == week
    assert read(",Price\n0,20\n1,24\n", DocumentFormat.CSV) == [
        row(["", "Price"], ["0", "20"]),
        row(["", "Price"], ["1", "24"]),
    ]
    assert read("Opens,,Tue\n9,1,2\n", DocumentFormat.CSV)[0] == row([], ["Opens", "", "Tue"]), (
        "only a corner can be empty"
    )


def test_a_csv_file_without_names_gives_plain_rows() -> None:
    assert read("Tea,2\nMilk,3\n", DocumentFormat.CSV) == [row([], ["Tea", "2"]), row([], ["Milk", "3"])]
    assert read("sep=;\nDay;Open\nMon;9,5\n", DocumentFormat.CSV) == [row(["Day", "Open"], ["Mon", "9,5"])]
    euros = "Item;Euros\nTea;1,5,0\nMilk;2,5,0\n"
    assert read(euros, DocumentFormat.CSV)[0] == row(["Item", "Euros"], ["Tea", "1,5,0"])
    assert [block.text for block in read("Only\nwords\n", DocumentFormat.CSV)] == ["Only", "words"]


def test_json_gives_paths_and_values() -> None:
    clinic = """{"name": "Clinic", "open": true, "fax": null, "fee": 1.50, "tags": ["a", "b"],
        "hours": {"mon": "9-5", "sun": null},
        "staff": [{"name": "Ann"}, {"name": "Bob", "room": {"floor": 2}}]}"""
    assert read(clinic, DocumentFormat.JSON) == [
        row(["hours.mon"], ["9-5"]),
        row(["name", "open", "fee", "tags"], ["Clinic", "true", "1.50", "a, b"]),
        heading("staff", 1),
        row(["name"], ["Ann"]),
        row(["name", "room.floor"], ["Bob", "2"]),
    ]


def test_json_lines_are_read() -> None:
    assert read('{"a": 1}\n\n{"a": 2}\n', DocumentFormat.JSON) == [row(["a"], ["1"]), row(["a"], ["2"])]


def test_a_large_json_object_is_divided_under_headings() -> None:
    value = {"rooms": {f"room {number}": {"beds": number, "notes": "word " * 30} for number in range(60)}, "z": "last"}
    blocks = read(json.dumps(value), DocumentFormat.JSON)
    assert blocks[:2] == [row(["z"], ["last"]), heading("rooms", 1)]
    assert blocks[2].text.startswith("room 0.beds: 0; room 0.notes: word")
    assert len(blocks) == 62


def test_invalid_or_too_deep_json_is_unreadable() -> None:
    assert unreadable_message('{"a": 1,\n "b": }', DocumentFormat.JSON) == "The JSON is not valid at line 2, column 7"
    assert unreadable_message("[" * 100_000, DocumentFormat.JSON) == TOO_DEEP
    assert unreadable_message('[null, {}, [], ""]', DocumentFormat.JSON) == NO_TEXT


def test_json_numbers_stay_as_written_and_lone_surrogates_are_replaced() -> None:
    assert read(f'[{"9" * 5000}, 1e999, NaN, "\\ud800!"]', DocumentFormat.JSON)[0].text.startswith("999")
    assert [block.text for block in read('["a\\ud800"]', DocumentFormat.JSON)] == ["a\ufffd"]


def test_more_text_than_allowed_is_refused_instead_of_cut() -> None:
    message = "The file holds more than 1,000 characters of text"
    assert unreadable_message("word " * 300, DocumentFormat.TEXT, ReadLimits(characters=1000)) == message
    csv = "A very long name,Another\n" + "1,2\n" * 100
    assert unreadable_message(csv, DocumentFormat.CSV, ReadLimits(characters=1000)) == message


def test_megabytes_of_white_space_take_linear_time() -> None:
    assert read(b"a" + b"\n" * 5_000_000 + b"b", DocumentFormat.TEXT) == [paragraph("a"), paragraph("b")]
