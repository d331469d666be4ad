"""`trunkline org quota`, and the `--quota` argument of `trunkline org set`."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from config.settings import Settings

if TYPE_CHECKING:
    import sqlalchemy as sa

    from storage.accounts.quotas import QuotaUsage

DEFAULT: Final = "default"
_SIZE: Final = re.compile(r"([0-9]{1,15})(|KiB|MiB|GiB|TiB)")
_UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def add_arguments(change: argparse.ArgumentParser, show: argparse.ArgumentParser) -> None:
    """Add the arguments of `org set` and `org quota`."""
    change.add_argument(
        "--quota", action="append", default=[], type=_quota, metavar="NAME=N", dest="quotas",
        help=f"storage quota: agents=50, document_bytes=2GiB, or NAME={DEFAULT}; may be repeated",
    )  # fmt: skip
    show.add_argument("name", help="name of the organization")
    show.add_argument("--json", action="store_true", help="print one JSON object per line")


def _merge(own: Mapping[str, int] | None, changes: Sequence[tuple[str, int | None]]) -> dict[str, int] | None:
    """An organization's own quotas with the changes; a value of None removes one, so that the settings' applies."""
    quotas = {**(own or {}), **dict(changes)}
    return {name: value for name, value in quotas.items() if value is not None} or None


async def show(options: argparse.Namespace, settings: Settings) -> int:
    """Print an organization's usage and its quotas."""
    from storage.accounts import quotas
    from trunkline.organization_admin import open_database, organization_by_name

    def read(conn: sa.Connection) -> list[QuotaUsage]:
        organization_id = organization_by_name(conn, options.name).id
        return list(quotas.usage(conn, organization_id, settings.quotas.model_dump()).values())

    async with open_database(settings) as database:
        for each in await database.read(read):
            print(
                json.dumps(each.__dict__) if options.json else f"{each.quota:24} {each.used:>15} of {each.allowed:>15}"
            )
    return 0


async def change(settings: Settings, name: str, changes: Sequence[tuple[str, int | None]]) -> None:
    """Set quotas of an organization, effective from the next request on. Raises `NotFound`."""
    from storage.accounts import organizations
    from trunkline.organization_admin import open_database, organization_by_name

    def store(conn: sa.Connection) -> None:
        organization = organization_by_name(conn, name)
        organizations.change(conn, organization, {"quotas": _merge(organization.quotas, changes)})

    async with open_database(settings) as database:
        await database.write(store)


def _quota(text: str) -> tuple[str, int | None]:
    from storage.accounts.quotas import QUOTAS

    name, _, value = text.partition("=")
    if name not in QUOTAS:
        raise argparse.ArgumentTypeError(f"takes NAME=N; the names are {', '.join(QUOTAS)}")
    if value == DEFAULT:
        return name, None
    size = _SIZE.fullmatch(value)
    if size is None:
        raise argparse.ArgumentTypeError(f"takes a whole number, for bytes also such as 500MiB or 2GiB, or {DEFAULT}")
    return name, int(size[1]) * _UNITS[size[2]]
