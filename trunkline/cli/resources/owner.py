"""The organization that a command works for, and the JSON that it is given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from config.errors import FieldProblem, Invalid, StartupError

if TYPE_CHECKING:
    import sqlalchemy as sa
    from pydantic import BaseModel

    from config.settings import Settings
    from storage.accounts.organizations import Organization

M = TypeVar("M", bound="BaseModel")
STDIN: Final = "-"
MAX_BODY_BYTES: Final = 1024 * 1024

org_option: Callable[[Any], Any] = click.option(
    "--org", metavar="NAME", help="name of the organization (default: the only one)"
)
file_argument: Callable[[Any], Any] = click.argument(
    "file", metavar="FILE", help="file with the JSON of the API's request; - for stdin"
)


def owner_of(conn: sa.Connection, name: str | None) -> Organization:
    """Returns the organization of `--org`, or the only one. Raises `NotFound` and `StartupError`."""
    from storage.accounts import organizations
    from trunkline.organization_admin import organization_by_name

    if name is not None:
        return organization_by_name(conn, name)
    found = organizations.all_of(conn)
    if len(found) == 1:
        return found[0]
    if not found:
        raise StartupError("there is no organization yet: `trunkline org create NAME`")
    raise StartupError(f"name the organization with --org: there are {', '.join(each.name for each in found)}")


def read_body(model: type[M], file: str, settings: Settings) -> M:
    """Returns the validated JSON of a file. Raises `Invalid` with all wrong fields, and `StartupError`."""
    from api.routing.validation import check_body
    from api.schemas.base import BodyContext

    try:
        content = sys.stdin.buffer.read(MAX_BODY_BYTES + 1) if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise StartupError(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > MAX_BODY_BYTES:
        raise Invalid([FieldProblem("body", f"Must be at most {MAX_BODY_BYTES} bytes")])
    return check_body(model, content, BodyContext(allow_http_webhooks=settings.webhooks.allow_http))
