"""Uploaded files in bodies: base64 with the name, media type and size of the file."""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from api.schemas.base import Body, BodyContext, Name
from api.schemas.bounds import MAX_NAME, MIB, bounds_whole_value

CONTENT_FIELD: Final = "fileBase64"
"""The field with the file."""
MAX_BYTES: Final = 20 * MIB
"""Size of a file."""
MAX_CHARACTERS: Final = (MAX_BYTES + 2) // 3 * 4
"""Size of its base64."""
MAX_UPLOAD_BODY: Final = 28 * MIB
"""Bytes of a body with a file in it."""
_CHUNK: Final = 1 << 20
"""Characters that are decoded at once; a multiple of four."""
_TOO_LARGE: Final = PydanticCustomError("file_too_large", "Must be a file of at most 20 MiB")
_NOT_BASE64: Final = PydanticCustomError("base64", "Must be base64 with padding, without line breaks")


@bounds_whole_value
def _decode(value: object, info: ValidationInfo) -> bytes:
    """Decodes base64 (RFC 4648, 4) in chunks, so that other threads, such as those of calls, get the GIL in between.
    The file of a form is in the context."""
    if isinstance(info.context, BodyContext) and info.context.file is not None:
        return info.context.file
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Must be a valid string")
    if len(value) > MAX_CHARACTERS:
        raise _TOO_LARGE
    # The decoder accepts too much padding, and padding at the end of a chunk that is not the last.
    if len(value) % 4 or value.find("=", 0, max(len(value) - 2, 0)) >= 0:
        raise _NOT_BASE64
    chunks = (value[at : at + _CHUNK] for at in range(0, len(value), _CHUNK))
    try:
        content = b"".join(binascii.a2b_base64(chunk, strict_mode=True) for chunk in chunks)
    except ValueError as error:
        raise _NOT_BASE64 from error
    if len(content) > MAX_BYTES:
        raise _TOO_LARGE
    return content


def _check_size(size: int, info: ValidationInfo) -> int:
    """Raises unless the size is that of the decoded file; it is not checked if the file could not be decoded."""
    content: bytes | None = info.data.get("file_base64")
    if content is not None and size != len(content):
        raise PydanticCustomError(
            "file_size", "Must be the size of the decoded file, {size} bytes", {"size": len(content)}
        )
    return size


FileContent = Annotated[
    bytes,
    PlainValidator(_decode),
    WithJsonSchema({"type": "string", "format": "byte", "maxLength": MAX_CHARACTERS}),
]


class FileUpload(Body):
    """A body with a file in it. `file_size` comes after `file_base64` because it is compared with the decoded file."""

    types_of_suffixes: ClassVar[Mapping[str, str]] = {}
    """Media types of files in forms whose client does not know them, by the suffix of the name in lower case."""

    filename: Name
    mime_type: Annotated[str, Field(max_length=MAX_NAME)]
    file_base64: FileContent = Field(repr=False, description="The file in base64; at most 20 MiB of file")
    file_size: Annotated[int, Field(ge=0, le=MAX_BYTES), AfterValidator(_check_size)] = Field(
        description="Bytes of the decoded file"
    )
