"""Bodies of uploads as `multipart/form-data` (RFC 7578): one part with the file, the other fields as parts of text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote

from api.routing.validation import invalid
from api.schemas.file_upload import CONTENT_FIELD, MAX_BYTES
from config.errors import FieldProblem, Invalid

FILE: Final = "file"
"""Name of the part with the file."""
MAX_PARTS: Final = 32
MAX_TEXT: Final = 64 * 1024
"""Bytes of a part that is not the file."""
MAX_HEAD: Final = 8192
"""Bytes of the headers of a part."""
MAX_BOUNDARY: Final = 70
"""Characters (RFC 2046, 5.1.1)."""
_WINDOW: Final = 1 << 20
_CRLF: Final = b"\r\n"
_PLAIN: Final = ("", "binary", "8bit", "7bit")
"""Values of Content-Transfer-Encoding that change nothing."""
_UNICODE: Final = ("utf-8", "utf8", "us-ascii")
_UNKNOWN_TYPES: Final = ("", "application/octet-stream")
"""Types of a file whose client does not know it."""
_PARAMETER: Final = re.compile(r';[ \t]*([\w!#$%&\'*+.^`|~-]+)[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|[^";]*)[ \t]*')
_ESCAPE: Final = re.compile(r'\\(["\\])')
_EXTENDED: Final = re.compile(r"utf-8'[^']*'(.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Form:
    """A form as the JSON body that it stands for, with an empty text in place of the base64, and its file."""

    fields: bytes
    content: bytes


@dataclass(frozen=True)
class _Part:
    """A part: its parameters and headers, names in lower case, and the place of its content in the body."""

    name: str
    filename: str | None
    headers: Mapping[str, str]
    start: int
    end: int


def read_form(content_type: str, body: bytes, types_of_suffixes: Mapping[str, str]) -> Form:
    """Returns the form in a complete body. A file without a type, or of type `application/octet-stream`, gets that of
    its name's suffix. Raises `Invalid` if the form is malformed, lacks the file, has too many or too long parts, or two
    parts of one name."""
    fields: dict[str, object] = {}
    described: dict[str, object] = {}
    content: bytes | None = None
    for count, part in enumerate(_parts(_boundary(content_type), body), start=1):
        name = part.name
        if count > MAX_PARTS:
            raise _malformed(f"with at most {MAX_PARTS} parts")
        if name in fields or (name == FILE and content is not None):
            raise invalid([FieldProblem(name, "Is given twice")])
        _require_plain(part)
        if name == FILE:
            if part.end - part.start > MAX_BYTES:
                raise invalid([FieldProblem(FILE, "Must be a file of at most 20 MiB")])
            content = body[part.start : part.end]
            described = _described(part, len(content), types_of_suffixes)
        elif name == CONTENT_FIELD:
            raise Invalid([FieldProblem(FILE, f"Must be sent as it is in the part {FILE}, not as {CONTENT_FIELD}")])
        else:
            fields[name] = _value(part, body)
    if content is None:
        raise Invalid([FieldProblem(FILE, "Is required")])
    return Form(json.dumps(described | fields | {CONTENT_FIELD: ""}, ensure_ascii=False).encode(), content)


def in_terms_of_form(error: Invalid) -> Invalid:
    """The error with the file named as the part of the form that it is."""
    problems = [FieldProblem(FILE, each.message) if each.field == CONTENT_FIELD else each for each in error.problems]
    return Invalid(problems, error.message)


def _boundary(content_type: str) -> bytes:
    _, semicolon, parameters = content_type.partition(";")
    boundary = _parameters(semicolon + parameters).get("boundary", "").rstrip()
    if not 1 <= len(boundary) <= MAX_BOUNDARY or not boundary.isascii():
        raise _malformed(f"with a boundary of 1 to {MAX_BOUNDARY} ASCII characters in Content-Type")
    return b"--" + boundary.encode()


def _parts(boundary: bytes, body: bytes) -> Iterator[_Part]:
    """The parts in their order. What comes after the last boundary is ignored."""
    at = len(_CRLF) if body.startswith(_CRLF) else 0
    if not body.startswith(boundary, at):
        raise _malformed("that begins with the boundary of Content-Type")
    at += len(boundary)
    while not body.startswith(b"--", at):
        head_end = body.find(_CRLF * 2, at, at + MAX_HEAD)
        if not body.startswith(_CRLF, at) or head_end < 0:
            raise _malformed(f"whose parts have headers of at most {MAX_HEAD} bytes, and CRLF as line end")
        start = head_end + 2 * len(_CRLF)
        # The line end of the boundary may be that of the headers: then the part is empty.
        end = _find(body, _CRLF + boundary, start - len(_CRLF))
        if end < 0:
            raise _malformed("up to its last boundary")
        headers = _headers(body[at:head_end])
        name, filename = _names(headers)
        yield _Part(name, filename, headers, start, max(start, end))
        at = end + len(_CRLF) + len(boundary)


def _find(body: bytes, what: bytes, start: int) -> int:
    """As `bytes.find`, in steps, so that other threads, such as those of calls, get the GIL in between."""
    for at in range(start, len(body), _WINDOW):
        if (found := body.find(what, at, at + _WINDOW + len(what) - 1)) >= 0:
            return found
    return -1


def _headers(head: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    try:
        lines = [each for each in head.decode().split("\r\n") if each]
    except UnicodeDecodeError as error:
        raise _malformed("with headers of parts in UTF-8") from error
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.strip().lower()
        if not colon or not name or name in headers:
            raise _malformed("whose parts have well-formed headers, each once")
        headers[name] = value.strip()
    return headers


def _names(headers: Mapping[str, str]) -> tuple[str, str | None]:
    """The name of a part and the file name in it. The file name may be encoded (RFC 8187)."""
    kind, semicolon, rest = headers.get("content-disposition", "").partition(";")
    parameters = _parameters(semicolon + rest)
    name = parameters.get("name")
    if kind.strip().lower() != "form-data" or not name:
        raise _malformed('whose parts have the header Content-Disposition: form-data; name="..."')
    extended = parameters.get("filename*")
    if extended is None:
        return name, parameters.get("filename")
    try:
        return name, unquote(_EXTENDED.fullmatch(extended)[1], errors="strict")  # type: ignore[index]
    except (TypeError, UnicodeDecodeError) as error:
        raise invalid([FieldProblem("filename", "Must be UTF-8")]) from error


def _parameters(text: str) -> dict[str, str]:
    """The parameters of a header, names in lower case, from the first semicolon on. Raises `Invalid` if they are
    malformed or repeated."""
    parameters: dict[str, str] = {}
    at = 0
    text = text.rstrip(" \t;")
    while at < len(text):
        found = _PARAMETER.match(text, at)
        if found is None or (name := found[1].lower()) in parameters:
            raise _malformed("with well-formed headers, each parameter once")
        value = found[2]
        parameters[name] = _ESCAPE.sub(r"\1", value[1:-1]) if value.startswith('"') else value.strip()
        at = found.end()
    return parameters


def _require_plain(part: _Part) -> None:
    encoding = part.headers.get("content-transfer-encoding", "").lower()
    if encoding not in _PLAIN or "content-encoding" in part.headers:
        raise invalid([FieldProblem(part.name, "Must be sent as it is, without an encoding")])


def _described(file: _Part, size: int, types_of_suffixes: Mapping[str, str]) -> dict[str, object]:
    """The fields that the part with the file has in its headers."""
    media_type = file.headers.get("content-type", "")
    if media_type.lower() in _UNKNOWN_TYPES:
        media_type = types_of_suffixes.get(PurePosixPath(file.filename or "").suffix.lower(), media_type)
    found = {"filename": file.filename, "mimeType": media_type or None, "fileSize": size}
    return {name: value for name, value in found.items() if value is not None}


def _value(part: _Part, body: bytes) -> object:
    """The value of a part in JSON: `fileSize` is a number, everything else a text."""
    if part.end - part.start > MAX_TEXT:
        raise invalid([FieldProblem(part.name, f"Must be at most {MAX_TEXT} bytes")])
    _, semicolon, parameters = part.headers.get("content-type", "").partition(";")
    charset = _parameters(semicolon + parameters).get("charset", "utf-8").lower()
    try:
        value = body[part.start : part.end].decode()
    except UnicodeDecodeError as error:
        raise invalid([FieldProblem(part.name, "Must be UTF-8")]) from error
    if charset not in _UNICODE:
        raise invalid([FieldProblem(part.name, "Must be UTF-8")])
    digits = part.name == "fileSize" and value.isascii() and value.isdigit() and len(value) < 20
    return int(value) if digits else value


def _malformed(what: str) -> Invalid:
    return Invalid([FieldProblem("body", f"Must be multipart/form-data {what}")])
