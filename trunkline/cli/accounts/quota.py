"""`trunkline org quota`, and the `--quota` option of `trunkline org set`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.framework.argument_types import Value
from trunkline.cli.framework.commands import Command, json_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    import sqlalchemy as sa

    from config.settings import Settings
    from storage.accounts.quotas import QuotaUsage

DEFAULT: Final = "default"
_SIZE: Final = re.compile(r"([0-9]{1,15})(|KiB|MiB|GiB|TiB)")
_UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_COLUMNS: Final = {"quota": "QUOTA", "used": "USED", "allowed": "ALLOWED"}


def _merge(own: Mapping[str, int] | None, changes: Sequence[tuple[str, int | None]]) -> dict[str, int] | None:
    """An organization's own quotas with the changes; a value of None removes one, so that the settings' applies."""
    quotas = {**(own or {}), **dict(changes)}
    return {name: value for name, value in quotas.items() if value is not None} or None


@click.command(
    "quota", cls=Command, examples=("trunkline org quota acme", "trunkline org quota acme --json")
)  # fmt: skip
@click.argument("name", help="name of the organization")
@json_option
async def show(settings: Settings, name: str, as_json: bool) -> int:
    """Show an organization's usage and its quotas."""
    from storage.accounts import quotas
    from trunkline.organization_admin import open_database, organization_by_name

    def read(conn: sa.Connection) -> list[QuotaUsage]:
        organization_id = organization_by_name(conn, name).id
        return list(quotas.usage(conn, organization_id, settings.quotas.model_dump()).values())

    async with open_database(settings) as database:
        rows = [each.__dict__ for each in await database.read(read)]
    if as_json:
        print_json(rows)
    else:
        print_table(_COLUMNS, [{key: str(value) for key, value in row.items()} for row in rows])
    return 0


async def change(settings: Settings, name: str, changes: Sequence[tuple[str, int | None]]) -> None:
    """Set quotas of an organization, effective from the next request on. Raises `NotFound`."""
    from storage.accounts import organizations
    from trunkline.organization_admin import open_database, organization_by_name, record_change

    def store(conn: sa.Connection) -> None:
        organization = organization_by_name(conn, name)
        organizations.change(conn, organization, {"quotas": _merge(organization.quotas, changes)})
        record_change(conn, organization.id, "organization.update", ["quotas"])

    async with open_database(settings) as database:
        await database.write(store)


def _quota(text: str) -> tuple[str, int | None]:
    from storage.accounts.quotas import QUOTAS

    name, _, value = text.partition("=")
    if name not in QUOTAS:
        raise ValueError(f"takes NAME=N; the names are {', '.join(QUOTAS)}")
    if value == DEFAULT:
        return name, None
    size = _SIZE.fullmatch(value)
    if size is None:
        raise ValueError(f"takes a whole number, for bytes also such as 500MiB or 2GiB, or {DEFAULT}")
    return name, int(size[1]) * _UNITS[size[2]]


option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--quota", "quotas", multiple=True, type=Value("quota", _quota), metavar="NAME=N",
    help=f"storage quota: agents=50, document_bytes=2GiB, or NAME={DEFAULT}; may be repeated",
)  # fmt: skip
