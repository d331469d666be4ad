"""`trunkline key`: API keys of organizations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.framework.argument_types import NEW_NAME, POSITIVE_INT
from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.terminal.confirmation import confirm_deletion, yes_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings
    from storage.accounts.api_keys import ApiKey

_COLUMNS = {
    "prefix": "PREFIX", "state": "STATE", "organization": "ORGANIZATION", "name": "NAME", "rate": "RATE",
    "used": "LAST USED",
}  # fmt: skip


_KEY = click.argument("key_name", metavar="KEY", help="the key's prefix (tk_1a2b3c4d) or id, as `key list` shows them")


@click.group(cls=Group, examples=("trunkline key create --org acme", "trunkline key list"))
def key() -> None:
    """Manage API keys."""


@key.command(
    "create", examples=("trunkline key create --org acme --name crm", "trunkline key create --org acme --rate 600")
)
@click.option("--org", required=True, metavar="NAME", help="name of the organization")
@click.option("--name", type=NEW_NAME, help="purpose of the key")
@click.option("--rate", type=POSITIVE_INT, help="requests per minute (default: the settings')")
async def create(settings: Settings, org: str, name: str | None, rate: int | None) -> int:
    """Create an API key and print it; it is shown only once."""
    from trunkline import organization_admin

    print(await organization_admin.create_key(settings, org, name=name, requests_per_minute=rate))
    return 0


@key.command("list", examples=("trunkline key list", "trunkline key list --org acme --json"))
@click.option("--org", metavar="NAME", help="only of this organization")
@json_option
async def list_all(settings: Settings, org: str | None, as_json: bool) -> int:
    """List API keys, without their secrets."""
    from trunkline import organization_admin

    keys = await organization_admin.list_keys(settings, org)
    if as_json:
        print_json(_fields(each, organization) for each, organization in keys)
    else:
        print_table(_COLUMNS, [_row(each, organization) for each, organization in keys])
    return 0


@key.command("revoke", examples=("trunkline key revoke tk_1a2b3c4d",))
@_KEY
async def revoke(settings: Settings, key_name: str) -> int:
    """Revoke an API key, effective at once."""
    from trunkline import organization_admin

    revoked = await organization_admin.revoke_key(settings, key_name)
    print(f"revoked {revoked.prefix}")
    return 0


@key.command("rename", examples=('trunkline key rename tk_1a2b3c4d "web shop"',))
@_KEY
@click.argument("name", type=NEW_NAME, help="new purpose of the key")
async def rename(settings: Settings, key_name: str, name: str) -> int:
    """Change the purpose of an API key."""
    from trunkline import organization_admin

    renamed = await organization_admin.rename_key(settings, key_name, name)
    print(f"renamed {renamed.prefix} to {name}")
    return 0


@key.command("delete", examples=("trunkline key delete tk_1a2b3c4d", "trunkline key delete tk_1a2b3c4d --yes"))
@_KEY
@yes_option
async def delete(settings: Settings, key_name: str, yes: bool) -> int:
    """Delete an API key, also a revoked one; it stops working at once.

    Asks first. The audit log keeps the key's prefix.
    """
    from trunkline import organization_admin

    found, organization = await organization_admin.find_key(settings, key_name)
    state = "was revoked already" if found.revoked_at else "is in use: requests with it are rejected at once"
    confirm_deletion(
        f"the key {found.prefix} of {organization}", [f"it {state}; the audit log keeps its prefix"], yes=yes
    )
    await organization_admin.delete_key(settings, found.id)
    print(f"deleted {found.prefix}")
    return 0


def _row(each: ApiKey, organization: str) -> dict[str, str]:
    return {
        "prefix": each.prefix,
        "state": "revoked" if each.revoked_at else "active",
        "organization": organization,
        "name": each.name or "-",
        "rate": "-" if each.requests_per_minute is None else f"{each.requests_per_minute} a minute",
        "used": each.last_used_at.isoformat(timespec="seconds") if each.last_used_at else "never used",
    }


def _fields(each: ApiKey, organization: str) -> dict[str, Any]:
    from config.clock import iso

    return {
        "id": each.id,
        "prefix": each.prefix,
        "organization": organization,
        "name": each.name,
        "requestsPerMinute": each.requests_per_minute,
        "revokedAt": None if each.revoked_at is None else iso(each.revoked_at),
        "lastUsedAt": None if each.last_used_at is None else iso(each.last_used_at),
    }
