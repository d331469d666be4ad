"""Administration of the dashboard's users, for commands: works on the database, also while a server runs."""

from __future__ import annotations

import sqlalchemy as sa

from config.clock import utc_now
from config.did_you_mean import did_you_mean
from config.errors import NotFound
from config.settings import Settings
from storage.accounts import audit_log, organizations
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.users import administration, password_links, users
from storage.users.users import Role, User
from trunkline.organization_admin import command_actor, open_database, organization_by_name

FIRST_OPERATOR = "admin"


async def create_user(settings: Settings, name: str, role: Role, organization_name: str | None) -> tuple[User, str]:
    """Create a user; returns it with the token of the link that sets the password. Operators have no organization.
    Raises `Invalid`, `Conflict` if the name is taken, and `NotFound` for an unknown organization."""

    def create(conn: sa.Connection) -> tuple[User, str]:
        owner = None if organization_name is None else organization_by_name(conn, organization_name).id
        created, token = administration.create(conn, name, role, owner)
        _record(conn, created, "user.create")
        return created, token

    async with open_database(settings) as database:
        return await database.write(create)


async def list_users(settings: Settings, organization_name: str | None) -> list[tuple[User, str | None]]:
    """Returns the users of an organization, or everyone, each with the organization's name. Raises `NotFound`."""

    def read(conn: sa.Connection) -> list[tuple[User, str | None]]:
        owner = None if organization_name is None else organization_by_name(conn, organization_name).id
        names = {each.id: each.name for each in organizations.all_of(conn)}
        return [(each, names.get(each.organization_id or "")) for each in users.all_of(conn, owner)]

    async with open_database(settings) as database:
        return await database.read(read)


async def find_user(settings: Settings, name: str) -> User:
    """Returns the user with this name. Raises `NotFound`."""
    async with open_database(settings) as database:
        return await database.read(lambda conn: _by_name(conn, name))


async def reset_user(settings: Settings, name: str) -> tuple[User, str]:
    """Enable a user and end the password and the sessions; returns the token of a new link. Raises `NotFound`."""

    def reset(conn: sa.Connection) -> tuple[User, str]:
        found = _by_name(conn, name)
        _record(conn, found, "user.reset")
        return found, administration.reset(conn, found)

    async with open_database(settings) as database:
        return await database.write(reset)


async def disable_user(settings: Settings, name: str) -> User:
    """Disable a user, effective at once. Raises `NotFound`."""

    def disable(conn: sa.Connection) -> User:
        found = _by_name(conn, name)
        administration.disable(conn, found)
        _record(conn, found, "user.disable")
        return found

    async with open_database(settings) as database:
        return await database.write(disable)


async def delete_user(settings: Settings, name: str) -> User:
    """Delete a user, effective at once. Raises `NotFound`."""

    def delete(conn: sa.Connection) -> User:
        found = _by_name(conn, name)
        administration.delete(conn, found)
        _record(conn, found, "user.delete")
        return found

    async with open_database(settings) as database:
        return await database.write(delete)


def first_operator_link(conn: sa.Connection) -> str | None:
    """Returns the token of a new link for the first operator, while nobody has ever set a password; else None. An
    installation without users gets the operator `FIRST_OPERATOR`."""
    if users.has_any_password(conn):
        return None
    if users.is_empty(conn):
        created, token = administration.create(conn, FIRST_OPERATOR, "operator", None)
        _record(conn, created, "user.create")
        return token
    first = users.by_name(conn, FIRST_OPERATOR)
    if first is None or first.role != "operator" or first.disabled_at is not None:
        return None
    return password_links.create(conn, first.id, utc_now())


def first_password_command(conn: sa.Connection) -> str | None:
    """Returns the command that prints a link for `FIRST_OPERATOR`, while nobody has ever set a password; else None."""
    if users.has_any_password(conn):
        return None
    if users.by_name(conn, FIRST_OPERATOR) is None:
        return f"trunkline user create {FIRST_OPERATOR} --operator"
    return f"trunkline user reset {FIRST_OPERATOR}"


async def first_operator_address(database: Database, origin: str) -> str | None:
    """Returns the one-time address of `first_operator_link` below `origin`; None also while nothing can be stored,
    because a full disk must not keep the server from starting."""
    try:
        token = await database.write(first_operator_link)
    except StorageUnavailable:
        return None
    return None if token is None else password_links.url(origin, token)


def _by_name(conn: sa.Connection, name: str) -> User:
    found = users.by_name(conn, name)
    if found is None:
        known = [each.name for each in users.all_of(conn)]
        raise NotFound(f"there is no user {name!r}: see `trunkline user list`{did_you_mean(name, known)}")
    return found


def _record(conn: sa.Connection, user: User, action: str) -> None:
    audit_log.record(
        conn, user.organization_id, actor=command_actor(), action=action, about=user.audit_object, detail=user.role
    )
