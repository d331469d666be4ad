"""Bodies of uploads as `multipart/form-data` (RFC 7578): one part with the file, the other fields as parts of text."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Final

from aiohttp import BodyPartReader, MultipartReader, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.helpers import parse_mimetype
from aiohttp.http_exceptions import HttpProcessingError

from api.routing.validation import invalid
from api.schemas.file_upload import MAX_BYTES
from config.errors import FieldProblem, Invalid

FILE: Final = "file"
"""Name of the part with the file; problems of the file have the name of its field in JSON."""
CONTENT_FIELD: Final = "fileBase64"
MAX_PARTS: Final = 32
MAX_TEXT: Final = 64 * 1024
"""Bytes of a part that is not the file."""
MAX_HEADERS: Final = 16
"""Of a part."""
MAX_HEADER: Final = 4096
"""Bytes."""
CHUNK: Final = 256 * 1024
_FEED: Final = 1 << 20
_PLAIN: Final = ("", "binary", "8bit", "7bit")
"""Values of Content-Transfer-Encoding that change nothing."""


@dataclass(frozen=True)
class Form:
    """A form as the JSON body that it stands for, without the file. `content` is None if there is no file."""

    fields: bytes
    content: bytes | None


def read_form(content_type: str, body: bytes) -> Form:
    """Returns the form in a complete body. For a thread without an event loop: a body of 20 MiB takes 250 ms. Raises
    `Invalid` if it is malformed, has too many or too long parts, or two parts of one name."""
    return asyncio.run(_read(content_type, body))


async def _read(content_type: str, body: bytes) -> Form:
    try:
        boundary = parse_mimetype(content_type).parameters["boundary"]
        # The reader would skip lines before the first boundary, however many there are.
        if not body.startswith(f"--{boundary}\r\n".encode()):
            raise _malformed()
        head = {"Content-Type": content_type}
        return await _collect(MultipartReader(head, _stream(body), max_field_size=MAX_HEADER, max_headers=MAX_HEADERS))
    except (ValueError, LookupError, RuntimeError, HttpProcessingError) as error:
        raise _malformed() from error


def _stream(body: bytes) -> StreamReader:
    """The body as a stream; its limit is above the body, so that it never asks to pause."""
    loop = asyncio.get_running_loop()
    stream = StreamReader(BaseProtocol(loop), limit=len(body) + 1, loop=loop)
    for at in range(0, len(body), _FEED):
        stream.feed_data(body[at : at + _FEED])
    stream.feed_eof()
    return stream


async def _collect(reader: MultipartReader) -> Form:
    fields: dict[str, object] = {}
    content: bytes | None = None
    async for part in reader:
        if not isinstance(part, BodyPartReader) or not part.name:
            raise _malformed()
        name = part.name
        if len(fields) + (content is not None) >= MAX_PARTS:
            raise Invalid([FieldProblem("body", f"Must have at most {MAX_PARTS} parts")])
        if name in fields or (name == FILE and content is not None):
            raise invalid([FieldProblem(name, "Is given twice")])
        _require_plain(part, name)
        if name == FILE:
            content = await _read_part(part, MAX_BYTES, CONTENT_FIELD, "Must be a file of at most 20 MiB")
            file = part
        elif name == CONTENT_FIELD:
            raise Invalid([FieldProblem(name, f"Unknown field: send the part {FILE}")])
        else:
            fields[name] = _value(name, await _read_part(part, MAX_TEXT, name, f"Must be at most {MAX_TEXT} bytes"))
    if content is not None:
        fields = _described(file, content) | fields | {CONTENT_FIELD: ""}
    return Form(json.dumps(fields, ensure_ascii=False).encode(), content)


def _described(file: BodyPartReader, content: bytes) -> dict[str, object]:
    """The fields that the part with the file has in its headers."""
    found = {"filename": file.filename, "mimeType": file.headers.get("Content-Type"), "fileSize": len(content)}
    for name in ("filename", "mimeType"):
        if not _is_unicode(str(found[name])):
            raise Invalid([FieldProblem(name, "Must be UTF-8")])
    return {name: value for name, value in found.items() if value is not None}


def _is_unicode(text: str) -> bool:
    """False if bytes that are no UTF-8 were decoded to surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _require_plain(part: BodyPartReader, name: str) -> None:
    encoding = part.headers.get("Content-Transfer-Encoding", "").lower()
    if encoding not in _PLAIN or "Content-Encoding" in part.headers:
        raise invalid([FieldProblem(name, "Must be sent as it is, without an encoding")])


async def _read_part(part: BodyPartReader, limit: int, field: str, too_long: str) -> bytes:
    found = bytearray()
    while chunk := await part.read_chunk(CHUNK):
        found += chunk
        if len(found) > limit:
            raise invalid([FieldProblem(field, too_long)])
    return bytes(found)


def _value(name: str, text: bytes) -> object:
    """The value of a part in JSON: `fileSize` is a number, everything else a text."""
    try:
        value = text.decode()
    except UnicodeDecodeError as error:
        raise invalid([FieldProblem(name, "Must be UTF-8")]) from error
    return int(value) if name == "fileSize" and value.isascii() and value.isdigit() and len(value) < 20 else value


def _malformed() -> Invalid:
    return Invalid(
        [
            FieldProblem(
                "body", "Must be complete multipart/form-data, from the first boundary to the last, with named parts"
            )
        ]
    )
