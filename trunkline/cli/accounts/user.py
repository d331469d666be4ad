"""`trunkline user`: users of the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.framework.argument_types import NAME
from trunkline.cli.framework.commands import Command, Group, json_option
from trunkline.cli.terminal.confirmation import confirm_deletion, yes_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings
    from storage.users.users import Role, User

_COLUMNS = {
    "name": "NAME", "state": "STATE", "role": "ROLE", "organization": "ORGANIZATION", "signed_in": "LAST SIGN-IN",
}  # fmt: skip
_USER = click.argument("name", type=NAME, metavar="USER", help="the user's name, as `user list` shows it")


@click.group(cls=Group, examples=("trunkline user create anna --org acme --role editor", "trunkline user list"))
def user() -> None:
    """Manage the users of the dashboard."""


@user.command(
    "create",
    cls=Command,
    exclusive=(("role", "operator"),),
    examples=("trunkline user create anna --org acme --role editor", "trunkline user create admin --operator"),
)
@click.argument("name", type=NAME, help="the name to sign in with, unique on this server")
@click.option("--org", metavar="NAME", help="name of the organization")
@click.option(
    "--role", type=click.Choice(["owner", "editor", "viewer"]), help="what the user may do in the organization"
)
@click.option("--operator", is_flag=True, help="an operator of the server, who has all rights in all organizations")
async def create(settings: Settings, name: str, org: str | None, role: Role | None, operator: bool) -> int:
    """Create a user and print a link that sets the password.

    The link works once, and for 24 hours.
    """
    from trunkline import user_admin

    if operator and org is not None:
        raise click.UsageError("--operator and --org exclude each other")
    if not operator and (org is None or role is None):
        raise click.UsageError("--org and --role are needed, or --operator")
    created, token = await user_admin.create_user(settings, name, "operator" if operator else role or "viewer", org)
    _print_link(settings, created, token)
    return 0


@user.command("list", examples=("trunkline user list", "trunkline user list --org acme --json"))
@click.option("--org", metavar="NAME", help="only of this organization")
@json_option
async def list_all(settings: Settings, org: str | None, as_json: bool) -> int:
    """List users."""
    from trunkline import user_admin

    found = await user_admin.list_users(settings, org)
    if as_json:
        print_json(_fields(each, organization) for each, organization in found)
    else:
        print_table(_COLUMNS, [_row(each, organization) for each, organization in found])
    return 0


@user.command("reset", examples=("trunkline user reset anna",))
@_USER
async def reset(settings: Settings, name: str) -> int:
    """Print a new link that sets the password, for a forgotten one or a disabled user.

    The password and all sessions of the user end at once.
    """
    from trunkline import user_admin

    found, token = await user_admin.reset_user(settings, name)
    _print_link(settings, found, token)
    return 0


@user.command("disable", examples=("trunkline user disable anna",))
@_USER
async def disable(settings: Settings, name: str) -> int:
    """Disable a user, effective at once; `user reset` enables."""
    from trunkline import user_admin

    print(f"disabled {(await user_admin.disable_user(settings, name)).name}")
    return 0


@user.command("delete", examples=("trunkline user delete anna", "trunkline user delete anna --yes"))
@_USER
@yes_option
async def delete(settings: Settings, name: str, yes: bool) -> int:
    """Delete a user, effective at once.

    Asks first. The audit log keeps the user's name.
    """
    from trunkline import user_admin

    found = await user_admin.find_user(settings, name)
    confirm_deletion(f"the user {found.name}", ["sessions end at once; the audit log keeps the name"], yes=yes)
    print(f"deleted {(await user_admin.delete_user(settings, found.name)).name}")
    return 0


def _print_link(settings: Settings, created: User, token: str) -> None:
    from storage.users import password_links

    print(password_links.url(settings.public_origin, token))
    click.echo(f"{created.name} sets the password there: the link works once, and for 24 hours", err=True)


def _row(each: User, organization: str | None) -> dict[str, str]:
    return {
        "name": each.name,
        "state": each.state,
        "role": each.role,
        "organization": organization or "-",
        "signed_in": each.last_sign_in_at.isoformat(timespec="seconds") if each.last_sign_in_at else "-",
    }


def _fields(each: User, organization: str | None) -> dict[str, Any]:
    from config.clock import iso

    return {
        "id": each.id,
        "name": each.name,
        "role": each.role,
        "state": each.state,
        "organization": organization,
        "createdAt": iso(each.created_at),
        "lastSignInAt": None if each.last_sign_in_at is None else iso(each.last_sign_in_at),
    }
