"""Users, their sessions, and the links that set their passwords."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa

from config.clock import utc_now
from config.errors import Conflict, Invalid
from storage.accounts import audit_log, organizations
from storage.accounts.audit_log import Actor
from storage.database.database import Database
from storage.users import password_links, sessions, users
from storage.users.sessions import SessionLifetime
from storage.users.users import ROLES, Role, User

LIFETIME = SessionLifetime(idle=timedelta(hours=1), absolute=timedelta(hours=3))
NOW = utc_now()
MS = timedelta(milliseconds=1)


@pytest.fixture
async def user(database: Database, organization_id: str) -> User:
    return await database.write(lambda conn: users.create(conn, "Viewer@Example.com ", "viewer", organization_id))


async def test_names_are_unique_in_the_installation_whatever_their_case(database: Database, user: User) -> None:
    def check(conn: sa.Connection) -> None:
        assert user.name == "viewer@example.com"
        assert users.by_name(conn, " VIEWER@example.com") == user
        other = organizations.create(conn, "other").id
        with pytest.raises(Conflict):
            users.create(conn, "VIEWER@example.com", "owner", other)
        second = users.create(conn, "second", "owner", other)
        with pytest.raises(Conflict):
            users.rename(conn, second.id, user.name.upper())
        users.rename(conn, second.id, "Second")
        assert [each.name for each in users.all_of(conn)] == ["second", user.name]
        assert users.all_of(conn, other) == [second]

    await database.write(check)


@pytest.mark.parametrize("name", ["", " ", "-x", "a b", "a\nb", "ü", "x" * 65, "<b>"])
async def test_other_names_are_rejected(database: Database, name: str) -> None:
    with pytest.raises(Invalid):
        await database.write(lambda conn: users.create(conn, name, "operator", None))


async def test_only_an_operator_has_no_organization(database: Database, organization_id: str) -> None:
    for role in ROLES:
        wrong = organization_id if role == "operator" else None
        with pytest.raises(ValueError, match="an operator has no organization"):
            await database.write(partial(users.create, name="x", role=role, organization_id=wrong))
    made = await database.write(lambda conn: users.create(conn, "admin", "operator", None))
    assert made.organization_id is None


@pytest.mark.parametrize(
    ("role", "rights"),
    [("viewer", ROLES[:1]), ("editor", ROLES[:2]), ("owner", ROLES[:3]), ("operator", ROLES)],
)
def test_each_role_has_the_rights_of_those_before_it(role: Role, rights: tuple[Role, ...]) -> None:
    assert tuple(each for each in ROLES if users.has_role(role, each)) == rights


async def test_a_session_ends_after_idle_time_and_in_any_case_after_its_lifetime(
    database: Database, user: User
) -> None:
    token = await database.write(lambda conn: sessions.create(conn, user.id, NOW))

    async def is_valid(at: datetime) -> bool:
        return await database.read(lambda conn: sessions.find(conn, token, at, LIFETIME)) is not None

    assert await is_valid(NOW + timedelta(hours=1) - MS)
    assert not await is_valid(NOW + timedelta(hours=1))
    for minutes in (50, 100, 150):
        used = NOW + timedelta(minutes=minutes)
        await database.write(partial(sessions.set_last_used, sha256=sessions.token_hash(token), at=used))
        assert await is_valid(used)
    assert await is_valid(NOW + timedelta(hours=3) - MS)
    assert not await is_valid(NOW + timedelta(hours=3))
    assert await database.write(lambda conn: sessions.delete_ended(conn, NOW + timedelta(hours=3) - MS, LIFETIME)) == 0
    assert await database.write(lambda conn: sessions.delete_ended(conn, NOW + timedelta(hours=3), LIFETIME)) == 1


async def test_sessions_end_one_by_one_or_all_of_a_user(database: Database, user: User) -> None:
    def check(conn: sa.Connection) -> None:
        other = users.create(conn, "other", "operator", None)
        first, second, third = (sessions.create(conn, user.id, NOW) for _ in range(3))
        kept = sessions.create(conn, other.id, NOW)
        sessions.end(conn, sessions.token_hash(first))
        assert [sessions.find(conn, each, NOW, LIFETIME) is None for each in (first, second)] == [True, False]
        assert sessions.end_all(conn, user.id) == 2
        assert sessions.find(conn, third, NOW, LIFETIME) is None
        found = sessions.find(conn, kept, NOW, LIFETIME)
        assert found is not None
        assert found.user == other

    await database.write(check)


async def test_a_disabled_user_has_no_session_and_no_link_until_a_reset(database: Database, user: User) -> None:
    def check(conn: sa.Connection) -> None:
        session, link = sessions.create(conn, user.id, NOW), password_links.create(conn, user.id, NOW)
        users.set_password_hash(conn, user.id, "old")
        users.disable(conn, user.id)
        assert sessions.find(conn, session, NOW, LIFETIME) is None
        assert password_links.set_password(conn, link, "new", NOW) is None
        token = password_links.reset(conn, user.id, NOW)
        assert users.get(conn, user.id) == user
        assert sessions.find(conn, session, NOW, LIFETIME) is None
        assert password_links.find(conn, token, NOW) == user

    await database.write(check)


async def test_a_link_sets_the_password_once_and_ends_all_sessions(database: Database, user: User) -> None:
    def check(conn: sa.Connection) -> None:
        earlier = password_links.create(conn, user.id, NOW)
        token = password_links.create(conn, user.id, NOW)
        session = sessions.create(conn, user.id, NOW)
        assert password_links.set_password(conn, earlier, "new", NOW) is None
        assert sessions.find(conn, session, NOW, LIFETIME) is not None
        changed = password_links.set_password(conn, token, "new", NOW)
        assert changed is not None
        assert changed.password_hash == "new"
        assert sessions.find(conn, session, NOW, LIFETIME) is None
        assert password_links.set_password(conn, token, "newer", NOW) is None

    await database.write(check)


async def test_a_link_works_for_24_hours(database: Database, user: User) -> None:
    def check(conn: sa.Connection) -> None:
        token = password_links.create(conn, user.id, NOW)
        end = NOW + timedelta(hours=24)
        assert password_links.find(conn, token, end - MS) == user
        assert password_links.set_password(conn, token, "new", end) is None
        assert password_links.delete_expired(conn, end - MS) == 0
        assert password_links.delete_expired(conn, end) == 1

    await database.write(check)


@pytest.mark.sqlite
async def test_the_texts_of_cookies_and_links_are_not_stored(database: Database, user: User) -> None:
    cookie = await database.write(lambda conn: sessions.create(conn, user.id, NOW))
    link = await database.write(lambda conn: password_links.create(conn, user.id, NOW))

    def dumped() -> str:
        with closing(sqlite3.connect(database.path)) as conn:
            return "\n".join(conn.iterdump())

    dump = await asyncio.to_thread(dumped)
    assert sessions.token_hash(cookie) in dump
    assert sessions.token_hash(link) in dump
    assert cookie not in dump
    assert link not in dump


async def test_deleting_an_organization_deletes_its_users_with_sessions_and_links(
    database: Database, user: User
) -> None:
    def check(conn: sa.Connection) -> None:
        admin = users.create(conn, "admin", "operator", None)
        session, link = sessions.create(conn, user.id, NOW), password_links.create(conn, user.id, NOW)
        (organization,) = organizations.all_of(conn)
        organizations.delete(conn, organization)
        assert users.all_of(conn) == [admin]
        assert sessions.find(conn, session, NOW, LIFETIME) is None
        assert password_links.find(conn, link, NOW) is None
        assert not users.is_empty(conn)
        users.delete(conn, admin.id)
        assert users.is_empty(conn)

    await database.write(check)


async def test_the_audit_log_holds_changes_of_the_whole_installation(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        whole = audit_log.record(conn, None, actor=Actor("operator", "admin"), action="user.create")
        own = audit_log.record(conn, organization_id, actor=Actor("operator", "admin"), action="user.create")
        assert audit_log.entries_since(conn, None, NOW) == [whole]
        assert audit_log.entries_since(conn, organization_id, NOW) == [own]

    await database.write(check)
