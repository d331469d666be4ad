"""Signing in and out, and links that set passwords, on a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from api.auth.passwords import PasswordHashing
from api.auth.shared_rate_limit import SharedRateLimiter
from api.auth.sign_in import SignedIn, SignIn
from api.auth.sign_in_limit import PER_USER
from config.clock import utc_now
from config.errors import Invalid, LimitExceeded, Unauthorized
from config.secrets import Secrets
from storage import tables
from storage.accounts import audit_log
from storage.database.database import Database
from storage.users import password_links, sessions, users
from storage.users.sessions import SessionLifetime
from storage.users.users import User
from tests import database_template

PASSWORD = "correct horse battery"
KEYS = Secrets([Fernet.generate_key()])
LIFETIME = SessionLifetime(timedelta(hours=12), timedelta(days=7))
BEGINNING = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await database_template.open_copy(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
async def sign_in(database: Database) -> AsyncIterator[SignIn]:
    hashing = PasswordHashing(memory_kib=64)
    yield SignIn(database, KEYS, hashing, LIFETIME, SharedRateLimiter(database, KEYS, is_shared=False))
    hashing.close()


@pytest.fixture
async def link(database: Database) -> str:
    admin = await database.write(lambda conn: users.create(conn, "admin", "operator", None))
    return await database.write(lambda conn: password_links.create(conn, admin.id, utc_now()))


@pytest.fixture
async def admin(database: Database, sign_in: SignIn, link: str) -> User:
    await sign_in.set_password(link, PASSWORD)
    found = await database.read(lambda conn: users.by_name(conn, "admin"))
    assert found is not None
    return found


async def _sign_in(
    sign_in: SignIn, name: str = "admin", password: str = PASSWORD, browser: str | None = None, now_s: float = 1e6
) -> SignedIn:
    return await sign_in.sign_in(name, password, address="192.0.2.1", browser=browser, now_s=now_s)


async def test_a_password_begins_a_session_until_the_user_signs_out(sign_in: SignIn, admin: User) -> None:
    first, second = await _sign_in(sign_in), await _sign_in(sign_in, " ADMIN ")
    session = await sign_in.find(first.session_token)
    assert session is not None
    assert session.user.name == admin.name
    assert session.user.last_sign_in_at is not None
    await sign_in.sign_out(session)
    assert await sign_in.find(first.session_token) is None
    assert await sign_in.find(second.session_token) is not None


async def test_signing_out_everywhere_ends_all_sessions(sign_in: SignIn, admin: User) -> None:
    first, second = await _sign_in(sign_in), await _sign_in(sign_in)
    session = await sign_in.find(first.session_token)
    assert session is not None
    await sign_in.sign_out(session, everywhere=True)
    assert await sign_in.find(second.session_token) is None


async def test_unknown_disabled_and_new_users_get_the_answer_of_a_wrong_password(
    database: Database, sign_in: SignIn, admin: User
) -> None:
    await database.write(lambda conn: users.create(conn, "new", "operator", None))
    wrong = [("admin", "another password"), ("new", ""), *((name, PASSWORD) for name in ("unknown", "new", "\ud800"))]
    answers = []
    for name, password in wrong:
        with pytest.raises(Unauthorized) as error:
            await _sign_in(sign_in, name, password)
        answers.append((error.value.message, error.value.problem))
    await database.write(lambda conn: users.disable(conn, admin.id))
    with pytest.raises(Unauthorized) as error:
        await _sign_in(sign_in)
    answers.append((error.value.message, error.value.problem))
    assert len(set(answers)) == 1


async def test_guessing_does_not_lock_the_user_out_of_known_browsers(sign_in: SignIn, admin: User) -> None:
    known = (await _sign_in(sign_in)).browser_token
    for _ in range(PER_USER - 1):
        with pytest.raises(Unauthorized):
            await _sign_in(sign_in, password="another password")
    with pytest.raises(LimitExceeded):
        await _sign_in(sign_in)
    assert (await _sign_in(sign_in, browser=known)).user.name == "admin"
    assert (await _sign_in(sign_in, now_s=1e6 + 61)).user.name == "admin"


async def test_a_link_works_once_even_for_requests_at_the_same_time(
    database: Database, sign_in: SignIn, link: str
) -> None:
    results = await asyncio.gather(
        *(sign_in.set_password(link, f"{PASSWORD} {number}") for number in range(4)), return_exceptions=True
    )
    (used,) = [number for number, result in enumerate(results) if not isinstance(result, BaseException)]
    assert sum(isinstance(result, Invalid) for result in results) == 3
    await _sign_in(sign_in, password=f"{PASSWORD} {used}")
    entries = await database.read(lambda conn: audit_log.entries_since(conn, None, BEGINNING))
    assert sorted((each.actor, each.action, each.object_name) for each in entries) == [
        ("admin", "user.set-password", "admin"),
        ("admin", "user.sign-in", "admin"),
        ("admin", "user.sign-in", "admin"),
    ]


@pytest.mark.parametrize("token", ["", "x", "x" * 10_000, "\ud800"])
async def test_other_tokens_set_no_password_and_begin_no_session(sign_in: SignIn, link: str, token: str) -> None:
    with pytest.raises(Invalid):
        await sign_in.set_password(token, PASSWORD)
    with pytest.raises(Invalid):
        await sign_in.set_password(link + token + "x", PASSWORD)
    assert await sign_in.find(token) is None
    await sign_in.set_password(link, PASSWORD)


async def test_a_short_password_leaves_the_link_usable(sign_in: SignIn, link: str) -> None:
    with pytest.raises(Invalid):
        await sign_in.set_password(link, "too short")
    await sign_in.set_password(link, PASSWORD)


async def test_a_hash_of_other_parameters_is_replaced_at_the_next_sign_in(
    database: Database, sign_in: SignIn, admin: User
) -> None:
    other = PasswordHashing(memory_kib=128)
    await _sign_in(SignIn(database, KEYS, other, LIFETIME, SharedRateLimiter(database, KEYS, is_shared=False)))
    other.close()
    stored = await database.read(lambda conn: users.get(conn, admin.id))
    assert stored is not None
    assert stored.password_hash is not None
    assert "m=128" in stored.password_hash
    await _sign_in(sign_in)


async def test_the_token_against_forged_requests_is_the_sessions_own(sign_in: SignIn, admin: User) -> None:
    first = await sign_in.find((await _sign_in(sign_in)).session_token)
    second = await sign_in.find((await _sign_in(sign_in)).session_token)
    assert first is not None
    assert second is not None
    assert sign_in.is_csrf_token(first, sign_in.csrf_token(first))
    for wrong in ("", sign_in.csrf_token(second), first.sha256, "\udcff"):
        assert not sign_in.is_csrf_token(first, wrong)


async def test_the_use_of_a_session_is_written_once_a_minute(database: Database, sign_in: SignIn, admin: User) -> None:
    token = (await _sign_in(sign_in)).session_token
    first = await sign_in.find(token)
    assert first is not None
    assert await sign_in.find(token) == first
    earlier = first.last_used_at - sessions.USE_STORED_EVERY
    change = sa.update(tables.user_sessions).values(last_used_at=earlier)
    await database.write(lambda conn: conn.execute(change).rowcount)
    await sign_in.find(token)
    third = await sign_in.find(token)
    assert third is not None
    assert third.last_used_at >= first.last_used_at
