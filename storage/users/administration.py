"""Changes to users, for the API and for commands, which record them in the audit log."""

from __future__ import annotations

import sqlalchemy as sa

from config.clock import utc_now
from storage.users import password_links, users
from storage.users.users import Role, User


def create(conn: sa.Connection, name: str, role: Role, organization_id: str | None) -> tuple[User, str]:
    """Store a user; returns it with the token of the link that sets the password. Operators have no organization.
    Raises as `users.create`."""
    created = users.create(conn, name, role, organization_id)
    return created, password_links.create(conn, created.id, utc_now())


def update(conn: sa.Connection, user: User, *, name: str | None = None, role: Role | None = None) -> None:
    """Change the name or the role, those that are given. Raises as `users.rename`."""
    if name is not None and name != user.name:
        users.rename(conn, user.id, name)
    if role is not None and role != user.role:
        users.set_role(conn, user.id, role)


def disable(conn: sa.Connection, user: User) -> None:
    """Disable a user, whose sessions and link end; nothing for one who is disabled."""
    if user.state != "disabled":
        password_links.disable(conn, user.id)


def enable(conn: sa.Connection, user: User) -> None:
    """Let a disabled user sign in again with the old password; nothing for one who is not disabled."""
    if user.state == "disabled":
        users.enable(conn, user.id)


def reset(conn: sa.Connection, user: User, *, at_once: bool = True) -> str:
    """Enable a user, and end the password and the sessions; returns the token of a new link. Unless `at_once`, they end
    when the link is used."""
    if at_once:
        return password_links.reset(conn, user.id, utc_now())
    return password_links.create(conn, user.id, utc_now())


def delete(conn: sa.Connection, user: User) -> None:
    """Delete a user with its sessions and link."""
    users.delete(conn, user.id)
