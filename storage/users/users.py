"""Users of the dashboard. A user belongs to one organization, an operator to none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import Conflict, FieldProblem, Invalid
from storage import tables
from storage.accounts.audit_log import Actor, AuditObject
from storage.tables.row_mapping import LazyResultPage, RowMapping

Role = Literal["viewer", "editor", "owner", "operator"]
ROLES: Final[tuple[Role, ...]] = ("viewer", "editor", "owner", "operator")
"""Each role has the rights of those before it."""
State = Literal["invited", "active", "disabled"]
"""An invited user has not set a password yet."""
MAX_NAME: Final = 64
NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9._@+-]{0,63}$"
NAME_RULE: Final = "1 to 64 of a-z, 0-9, . _ @ + -, beginning with a letter or digit"
_NAME: Final = re.compile(NAME_PATTERN)


@dataclass(frozen=True)
class User:
    """A stored user. `password_hash` is an argon2id hash, None until a link has set a password; `organization_id` is
    None for operators alone."""

    id: str
    organization_id: str | None
    name: str
    role: Role
    password_hash: str | None
    created_at: datetime
    last_sign_in_at: datetime | None
    disabled_at: datetime | None

    @property
    def state(self) -> State:
        """Whether the user can sign in: `active` alone can."""
        if self.disabled_at is not None:
            return "disabled"
        return "invited" if self.password_hash is None else "active"

    @property
    def actor(self) -> Actor:
        """The user in the audit log, as who makes a change."""
        return Actor("operator" if self.role == "operator" else "user", self.name, self.id)

    @property
    def audit_object(self) -> AuditObject:
        """The user in the audit log, as whom a change is about."""
        return AuditObject("user", self.id, self.name)


_USER: Final = RowMapping(User, tables.users)
_t = tables.users


def normalized_name(name: str) -> str:
    """Returns the name as it is stored: without space around it, in lower case."""
    return name.strip().lower()


def is_name(name: str) -> bool:
    """True if a normalized name follows `NAME_RULE`."""
    return _NAME.fullmatch(name) is not None


def has_role(role: Role, needed: Role) -> bool:
    """True if `role` has the rights of `needed`."""
    return ROLES.index(role) >= ROLES.index(needed)


def create(conn: sa.Connection, name: str, role: Role, organization_id: str | None) -> User:
    """Store a user, without a password. Raises `Invalid` for a name that breaks `NAME_RULE`, `Conflict` if it is
    taken."""
    if (role == "operator") != (organization_id is None):
        raise ValueError("an operator has no organization, every other user has one")
    name = normalized_name(name)
    if not is_name(name):
        raise Invalid([FieldProblem("name", f"Must be {NAME_RULE}")])
    if by_name(conn, name) is not None:
        raise Conflict(f"There is a user {name} already")
    user = User(str(uuid4()), organization_id, name, role, None, utc_now(), None, None)
    conn.execute(sa.insert(_t).values(**user.__dict__))
    return user


def by_name(conn: sa.Connection, name: str) -> User | None:
    """Returns the user with this name, in any case of letters."""
    return _first(conn, _t.c.name == normalized_name(name))


def get(conn: sa.Connection, user_id: str) -> User | None:
    """Returns the user with this id."""
    return _first(conn, _t.c.id == user_id)


def all_of(conn: sa.Connection, organization_id: str | None = None) -> list[User]:
    """The users of one organization, or everyone, by name."""
    query = sa.select(*_USER.columns).order_by(_t.c.name)
    if organization_id is not None:
        query = query.where(_t.c.organization_id == organization_id)
    return [_USER.build(row) for row in conn.execute(query)]


def page(conn: sa.Connection, organization_id: str, *, limit: int, offset: int) -> LazyResultPage[User]:
    """Users of one organization, newest first."""
    query = sa.select(*_USER.columns).where(_t.c.organization_id == organization_id)
    ordered = query.order_by(_t.c.created_at.desc(), _t.c.id.desc()).limit(limit).offset(offset)
    return LazyResultPage(map(_USER.build, conn.execute(ordered)), count(conn, organization_id))


def count(conn: sa.Connection, organization_id: str) -> int:
    """The number of users of one organization."""
    return conn.execute(
        sa.select(sa.func.count()).select_from(_t).where(_t.c.organization_id == organization_id)
    ).scalar_one()


def has_other_owner(conn: sa.Connection, user: User) -> bool:
    """True if another owner of the user's organization can sign in."""
    others = (_t.c.organization_id == user.organization_id, _t.c.role == "owner", _t.c.id != user.id)
    can_sign_in = (_t.c.password_hash.is_not(None), _t.c.disabled_at.is_(None))
    return conn.execute(sa.select(_t.c.id).where(*others, *can_sign_in).limit(1)).first() is not None


def has_any_password(conn: sa.Connection) -> bool:
    """True if any user has set a password."""
    return conn.execute(sa.select(_t.c.id).where(_t.c.password_hash.is_not(None)).limit(1)).first() is not None


def is_empty(conn: sa.Connection) -> bool:
    """True if there is no user at all."""
    return conn.execute(sa.select(_t.c.id).limit(1)).first() is None


def set_password_hash(conn: sa.Connection, user_id: str, password_hash: str | None) -> None:
    """Set or remove the password."""
    conn.execute(sa.update(_t).where(_t.c.id == user_id).values(password_hash=password_hash))


def set_signed_in(conn: sa.Connection, user_id: str, at: datetime) -> None:
    """Store when the user signed in."""
    conn.execute(sa.update(_t).where(_t.c.id == user_id).values(last_sign_in_at=at))


def set_role(conn: sa.Connection, user_id: str, role: Role) -> None:
    """Change the role of a user, not to or from an operator's."""
    conn.execute(sa.update(_t).where(_t.c.id == user_id).values(role=role))


def disable(conn: sa.Connection, user_id: str) -> None:
    """Disable a user: from then on, the user's password, sessions and links do not work."""
    conn.execute(sa.update(_t).where(_t.c.id == user_id).values(disabled_at=utc_now()))


def enable(conn: sa.Connection, user_id: str) -> None:
    """Enable a user."""
    conn.execute(sa.update(_t).where(_t.c.id == user_id).values(disabled_at=None))


def rename(conn: sa.Connection, user_id: str, name: str) -> None:
    """Change the name. Raises as `create`."""
    name = normalized_name(name)
    if not is_name(name):
        raise Invalid([FieldProblem("name", f"Must be {NAME_RULE}")])
    taken = by_name(conn, name)
    if taken is not None and taken.id != user_id:
        raise Conflict(f"There is a user {name} already")
    conn.execute(sa.update(_t).where(_t.c.id == user_id).values(name=name))


def delete(conn: sa.Connection, user_id: str) -> None:
    """Delete a user with its sessions and links. The audit log keeps its name."""
    conn.execute(sa.delete(_t).where(_t.c.id == user_id))


def _first(conn: sa.Connection, condition: sa.ColumnElement[bool]) -> User | None:
    row = conn.execute(sa.select(*_USER.columns).where(condition)).one_or_none()
    return None if row is None else _USER.build(row)
