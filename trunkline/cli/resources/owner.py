"""The organization that a command works for, and the JSON that it is given."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from config.errors import FieldProblem, Invalid, StartupError

if TYPE_CHECKING:
    import sqlalchemy as sa

    from storage.accounts.organizations import Organization

STDIN: Final = "-"
MAX_BODY_BYTES: Final = 1024 * 1024

org_option: Callable[[Any], Any] = click.option(
    "--org", metavar="NAME", help="name of the organization (default: the only one)"
)
file_argument: Callable[[Any], Any] = click.argument(
    "file", metavar="FILE", help="file with the JSON of the API's request; - for stdin"
)
from_option: Callable[[Any], Any] = click.option(
    "--from", "file", metavar="FILE", help="file with the JSON of the API's request, or - for stdin; options go first"
)


def owner_of(conn: sa.Connection, name: str | None) -> Organization:
    """Returns the organization of `--org`, or the only one; that of `trunkline demo` only where there is no other.
    Raises `NotFound` and `StartupError`."""
    from storage.accounts import organizations
    from storage.phone_numbers.trunk_grants import demo_organization
    from trunkline.organization_admin import organization_by_name

    if name is not None:
        return organization_by_name(conn, name)
    found = organizations.all_of(conn)
    demo = demo_organization(conn)
    found = [each for each in found if each.id != demo] or found
    if len(found) == 1:
        return found[0]
    if not found:
        raise StartupError("there is no organization yet: `trunkline org create NAME`")
    raise StartupError(f"name the organization with --org: there are {', '.join(each.name for each in found)}")


def read_fields(file: str | None) -> dict[str, Any]:
    """Returns the fields of a JSON file; none without a file. The operation validates them. Raises `Invalid` and
    `StartupError`."""
    from api.http.duplicate_json_keys import duplicate_key

    if file is None:
        return {}
    content = _read(file)
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise Invalid([FieldProblem("body", "Must be valid JSON")]) from error
    if not isinstance(fields, dict):
        raise Invalid([FieldProblem("body", "Must be a JSON object")])
    if (duplicate := duplicate_key(content)) is not None:
        raise Invalid([FieldProblem(".".join(duplicate), "Is given twice")])
    return fields


def read_text(file: str) -> str:
    """Returns the text of a file in UTF-8. Raises `StartupError`."""
    try:
        return _read(file).decode()
    except UnicodeDecodeError as error:
        raise StartupError(f"{file} is no text in UTF-8") from error


def _read(file: str) -> bytes:
    """The content of a file, or of stdin. Raises `Invalid` if it is too large, and `StartupError`."""
    try:
        content = sys.stdin.buffer.read(MAX_BODY_BYTES + 1) if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise StartupError(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > MAX_BODY_BYTES:
        raise Invalid([FieldProblem("body", f"Must be at most {MAX_BODY_BYTES} bytes")])
    return content
