"""Uploads as `multipart/form-data` in the OpenAPI document: the schema of the form, made from that of the JSON body."""

from __future__ import annotations

import copy
from typing import Any, Final

from api.routing.multipart import FILE
from api.schemas.file_upload import CONTENT_FIELD

_DEFAULTS: Final = {
    "filename": "default: that of the part `file`",
    "mimeType": "default: the Content-Type of the part `file`, or that of its name's suffix if there is none or "
    "`application/octet-stream`",
    "fileSize": "may be left out",
}
"""What an absent part means, for fields that JSON requires."""
_FILE: Final = {
    "type": "string",
    "format": "binary",
    "description": "The file, as it is; at most 20 MiB",
    "example": "A berth costs twenty euros.",
}


def form_name(body: str) -> str:
    """The name of the form's schema, from that of the JSON body."""
    return f"{body}Form"


def form_schema(body: dict[str, Any]) -> dict[str, Any]:
    """The schema of the form that stands for a JSON body with a file."""
    form = copy.deepcopy(body)
    properties: dict[str, Any] = {FILE: copy.deepcopy(_FILE)}
    for name, schema in form["properties"].items():
        if name in _DEFAULTS:
            schema["description"] = f"{schema['description']}; {_DEFAULTS[name]}"
        if name != CONTENT_FIELD:
            properties[name] = schema
    required = [name for name in form["required"] if name in properties and name not in _DEFAULTS]
    return {**form, "properties": properties, "required": [FILE, *required]}
