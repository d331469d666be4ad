"""`trunkline key`: API keys of organizations."""

from __future__ import annotations

import argparse

from config.settings import Settings
from trunkline.cli.argument_types import new_name, positive_int


def add_arguments(
    create: argparse.ArgumentParser, listing: argparse.ArgumentParser, revoke: argparse.ArgumentParser
) -> None:
    """Add the arguments of the three commands."""
    create.add_argument("--org", required=True, help="name of the organization")
    create.add_argument("--name", type=new_name, help="purpose of the key")
    create.add_argument("--rate", type=positive_int, help="requests per minute (default: the settings')")
    listing.add_argument("--org", help="only of this organization")
    revoke.add_argument("key", help="the key's prefix (tk_1a2b3c4d) or id, as `key list` shows them")


async def create(options: argparse.Namespace, settings: Settings) -> int:
    """Create an API key, and print it."""
    from trunkline import organization_admin

    print(
        await organization_admin.create_key(settings, options.org, name=options.name, requests_per_minute=options.rate)
    )
    return 0


async def list_all(options: argparse.Namespace, settings: Settings) -> int:
    """Print the API keys without their secrets."""
    from trunkline import organization_admin

    for key, organization in await organization_admin.list_keys(settings, options.org):
        state = "revoked" if key.revoked_at else "active "
        used = key.last_used_at.isoformat(timespec="seconds") if key.last_used_at else "never used"
        print(f"{key.prefix}  {state}  {organization}  {key.name or '-'}  {used}")
    return 0


async def revoke(options: argparse.Namespace, settings: Settings) -> int:
    """Revoke an API key, effective at once."""
    from trunkline import organization_admin

    key = await organization_admin.revoke_key(settings, options.key)
    print(f"revoked {key.prefix}")
    return 0
