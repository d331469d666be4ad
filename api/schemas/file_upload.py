"""Files in bodies: base64 with the file's metadata."""

from __future__ import annotations

import binascii
from typing import Annotated, Final

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from api.schemas.base import Body, Name
from api.schemas.bounds import MAX_NAME, MIB, bounds_whole

MAX_BYTES: Final = 20 * MIB
"""Of a file."""
MAX_CHARACTERS: Final = (MAX_BYTES + 2) // 3 * 4
"""Of its base64."""
MAX_UPLOAD_BODY: Final = 28 * MIB
"""Bytes of a body with a file in it."""
_PIECE: Final = 1 << 20
"""Characters that are decoded at once; a multiple of four."""
_TOO_LARGE: Final = PydanticCustomError("file_too_large", "Must be a file of at most 20 MiB")
_NO_BASE64: Final = PydanticCustomError("base64", "Must be base64 with padding, without line breaks")


@bounds_whole
def _decoded(value: object) -> bytes:
    """Decodes RFC 4648, 4, in pieces, so that other threads, those of calls among them, get the GIL in between."""
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Must be a valid string")
    if len(value) > MAX_CHARACTERS:
        raise _TOO_LARGE
    # The decoder lets padding pass that is too much, or that ends a piece and not the file.
    if len(value) % 4 or value.find("=", 0, max(len(value) - 2, 0)) >= 0:
        raise _NO_BASE64
    pieces = (value[at : at + _PIECE] for at in range(0, len(value), _PIECE))
    try:
        content = b"".join(binascii.a2b_base64(piece, strict_mode=True) for piece in pieces)
    except ValueError as error:
        raise _NO_BASE64 from error
    if len(content) > MAX_BYTES:
        raise _TOO_LARGE
    return content


def _as_sent(size: int, info: ValidationInfo) -> int:
    """Must equal the length of the file, where that could be decoded."""
    content: bytes | None = info.data.get("file_base64")
    if content is not None and size != len(content):
        raise PydanticCustomError(
            "file_size", "Must be the size of the decoded file, {size} bytes", {"size": len(content)}
        )
    return size


FileContent = Annotated[
    bytes,
    PlainValidator(_decoded),
    WithJsonSchema({"type": "string", "format": "byte", "maxLength": MAX_CHARACTERS}),
]


class FileUpload(Body):
    """A body with a file in it. `file_size` stands after `file_base64` because it is checked against it."""

    filename: Name
    mime_type: Annotated[str, Field(max_length=MAX_NAME)]
    file_base64: FileContent = Field(repr=False, description="The file in base64; at most 20 MiB of file")
    file_size: Annotated[int, Field(ge=0, le=MAX_BYTES), AfterValidator(_as_sent)] = Field(
        description="Bytes of the decoded file"
    )
