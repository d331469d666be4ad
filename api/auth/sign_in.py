"""Signing in and out, and setting a password by a link. What HTTP has to do with it (cookies, headers) is elsewhere."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

import sqlalchemy as sa
import structlog

from api.auth.passwords import PasswordHashing, check_length
from api.auth.shared_rate_limit import SharedRateLimiter
from api.auth.sign_in_limit import SignInLimiter, browser_token
from config.clock import utc_now
from config.errors import FieldProblem, Invalid, Unauthorized
from config.secrets import Secrets
from storage.accounts import audit_log
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.users import password_links, sessions, users
from storage.users.sessions import Session, SessionLifetime
from storage.users.users import User, normalized_name

MAX_TOKEN: Final = 100
"""Characters of a cookie or a link's token; longer ones are unknown."""
log = structlog.get_logger()
OPERATORS_LOCK: Final = "operators"
"""The lock of writes about users of no organization; those of organizations have the organization's."""
NOBODY: Final = ""
"""Stands for all texts that cannot be the name of a user."""


@dataclass(frozen=True)
class SignedIn:
    """What a browser gets: the texts of the cookies of its session, and of itself as the user's."""

    user: User
    session_token: str
    browser_token: str


class SignIn:
    """Users' sessions, in one database."""

    def __init__(
        self,
        database: Database,
        keys: Secrets,
        hashing: PasswordHashing,
        lifetime: SessionLifetime,
        limiter: SharedRateLimiter,
    ) -> None:
        self._database = database
        self._keys = keys
        self._hashing = hashing
        self._lifetime = lifetime
        self._limiter = SignInLimiter(keys, limiter)

    async def sign_in(
        self, user_name: str, password: str, *, address: str, browser: str | None, now_s: float
    ) -> SignedIn:
        """Begin a session. `browser` is the text of the browser's cookie, `now_s` the clock of the limits in seconds.
        Raises `Unauthorized`, the same for an unknown user and a wrong password, `LimitExceeded` and
        `Unavailable`."""
        name = normalized_name(user_name)
        if not users.is_name(name):
            name = NOBODY
        await self._limiter.charge(name, address, browser, now_s)
        user = await self._database.read(lambda conn: users.by_name(conn, name))
        known_hash = None if user is None or user.disabled_at is not None else user.password_hash
        if not await self._hashing.matches(known_hash, password) or user is None or known_hash is None:
            await self._record_failure(user, address)
            raise Unauthorized(FieldProblem("password", "This user name or this password is wrong"), "Sign-in failed")
        new_hash = await self._hashing.make_hash(password) if self._hashing.is_outdated(known_hash) else known_hash
        token = await self._database.write(
            partial(_begin, user_id=user.id, checked=known_hash, new_hash=new_hash, address=address),
            lock=user.organization_id or OPERATORS_LOCK,
        )
        return SignedIn(user, token, browser_token(self._keys, user.name))

    async def _record_failure(self, user: User | None, address: str) -> None:
        """A full disk does not change the response."""
        owner, about = (None, None) if user is None else (user.organization_id, user.audit_object)
        try:
            await self._database.write(
                lambda conn: audit_log.record_failed_sign_in(conn, owner, about, address), lock=owner or OPERATORS_LOCK
            )
        except StorageUnavailable as error:
            log.warning("sessions.failure_not_written", cause=error.cause)

    async def find(self, token: str) -> Session | None:
        """Returns the session of a cookie, None if there is none; notes its use."""
        if len(token) > MAX_TOKEN:
            return None
        now = utc_now()
        found = await self._database.read(lambda conn: sessions.find(conn, token, now, self._lifetime))
        if found is not None and now - found.last_used_at >= sessions.USE_STORED_EVERY:
            await self._note_use(found, now)
        return found

    async def _note_use(self, session: Session, now: datetime) -> None:
        """A full disk does not keep users from reading."""
        try:
            await self._database.write(
                lambda conn: sessions.set_last_used(conn, session.sha256, now),
                lock=session.user.organization_id or OPERATORS_LOCK,
            )
        except StorageUnavailable as error:
            log.warning("sessions.last_use_not_written", cause=error.cause)

    async def end(self, session: Session) -> None:
        """End a session that another one replaces."""
        await self._database.write(lambda conn: sessions.end(conn, session.sha256))

    async def sign_out(self, session: Session, *, everywhere: bool = False, address: str = "") -> None:
        """End a session, or all sessions of its user."""
        user = session.user

        def end(conn: sa.Connection) -> None:
            if everywhere:
                sessions.end_all(conn, user.id)
            else:
                sessions.end(conn, session.sha256)
            _record(conn, user, "user.sign-out-everywhere" if everywhere else "user.sign-out", address)

        await self._database.write(end)

    async def set_password(self, token: str, password: str, *, address: str = "") -> SignedIn:
        """Set the password by a link and begin a session, both recorded in the audit log. Raises `Invalid`, and
        `Unavailable`."""
        check_length(password)
        found = await self._database.read(lambda conn: password_links.find(conn, token[:MAX_TOKEN], utc_now()))
        if found is None:
            raise _useless_link()
        password_hash = await self._hashing.make_hash(password)

        def store(conn: sa.Connection) -> SignedIn:
            user = password_links.set_password(conn, token, password_hash, utc_now())
            if user is None:  # another request has used it meanwhile
                raise _useless_link()
            _record(conn, user, "user.set-password", address)
            session_token = _begin(conn, user.id, password_hash, password_hash, address)
            return SignedIn(user, session_token, browser_token(self._keys, user.name))

        return await self._database.write(store)

    def csrf_token(self, session: Session) -> str:
        """Returns the value of the header `X-CSRF-Token` for the writes of a session."""
        return self._keys.sign(f"csrf {session.sha256}")

    def is_csrf_token(self, session: Session, given: str) -> bool:
        """True if it is the session's. Takes constant time."""
        expected = self.csrf_token(session).encode()
        return hmac.compare_digest(expected, given.encode("utf-8", "surrogateescape"))


def _begin(conn: sa.Connection, user_id: str, checked: str, new_hash: str, address: str) -> str:
    """Store a session, unless the user was disabled, deleted or given another password since it was checked."""
    user = users.get(conn, user_id)
    if user is None or user.disabled_at is not None or user.password_hash != checked:
        raise Unauthorized(FieldProblem("password", "This user name or this password is wrong"), "Sign-in failed")
    if new_hash != checked:
        users.set_password_hash(conn, user_id, new_hash)
    now = utc_now()
    users.set_signed_in(conn, user_id, now)
    _record(conn, user, "user.sign-in", address)
    return sessions.create(conn, user_id, now)


def _record(conn: sa.Connection, user: User, action: str, address: str) -> None:
    """Store that a user did something with the own account, in the same transaction."""
    audit_log.record(
        conn, user.organization_id, actor=user.actor, action=action, about=user.audit_object, client=address or None
    )


def _useless_link() -> Invalid:
    return Invalid([FieldProblem("token", "This link was used, is over or is not complete: ask for a new one")])
