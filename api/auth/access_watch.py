"""Ends what outlasts its request, streams and WebSockets, when the right to it ends: the session is over, its user was
disabled, deleted or given a lesser role, or the API key was revoked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import sqlalchemy as sa
import structlog
from aiohttp import web

from api.auth.principal import Principal
from api.periodic_task import PeriodicTask
from config.clock import utc_now
from storage.accounts import api_keys
from storage.database.database import Database
from storage.users import sessions
from storage.users.sessions import SessionLifetime
from storage.users.users import Role, has_role

CHECK_EVERY_S: Final = 1.0
"""Between two looks at whether the database has changed, by whichever process."""
RECHECK_S: Final = 60.0
"""Between two looks at the rights without a change: sessions also end by time."""
TICKET_S: Final = 90.0
"""How long a ticket's principal is known: longer than the ticket can be used."""
ENDED: Final = "Not signed in any more, or without the needed role, or the API key is revoked"
log = structlog.get_logger()


class Access:
    """The right to what has begun. `ended` is done when it has ended."""

    def __init__(self, on_close: Callable[[Access], None]) -> None:
        self.ended: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self._on_close = on_close

    def close(self) -> None:
        """It is watched no more. Idempotent."""
        self._on_close(self)


class AccessWatch:
    """The rights that are watched, and who got the tickets of WebSockets. On the event loop."""

    def __init__(self, database: Database, lifetime: SessionLifetime) -> None:
        self._database = database
        self._lifetime = lifetime
        self._watched: dict[Access, tuple[Principal, Role]] = {}
        self._checked_number: int | None = None
        self._check_at_s = 0.0
        self._tickets: dict[str, tuple[Principal, float]] = {}

    def begin(self, principal: Principal, role: Role) -> Access:
        """Watch the right of a principal who has at least this role; the caller closes it."""
        access = Access(self._close)
        self._watched[access] = principal, role
        self._check_at_s = 0.0  # it may have ended since the request was authenticated
        return access

    def on_ticket(self, ticket: str, principal: Principal) -> None:
        """A ticket, which opens a WebSocket without a key or session, was given to this principal."""
        now_s = asyncio.get_running_loop().time()
        self._tickets = {text: each for text, each in self._tickets.items() if each[1] > now_s}
        self._tickets[ticket] = principal, now_s + TICKET_S

    def begin_by_ticket(self, ticket: str, role: Role) -> Access:
        """Watch the right of whom a ticket was given to, as `begin`; if nobody knows who that is, it does not end."""
        principal, _ = self._tickets.pop(ticket, (None, 0.0))
        return Access(self._close) if principal is None else self.begin(principal, role)

    def run(self) -> AbstractAsyncContextManager[None]:
        """Look at the rights while the block runs."""
        return PeriodicTask("access.not_checked", CHECK_EVERY_S, self._check_if_due).running("access watch")

    async def _check_if_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        number = self._database.change_number()
        is_unchanged = number is not None and number == self._checked_number
        watched = dict(self._watched)
        if not watched or (is_unchanged and now_s < self._check_at_s):
            return
        self._check_at_s = now_s + RECHECK_S
        try:
            ended = await self._database.read(lambda conn: self._ended_of(conn, watched))
        except BaseException:
            self._check_at_s = 0.0
            raise
        for each in ended:
            log.info("access.ended", actor=watched[each][0].name)
            each.close()
            if not each.ended.done():
                each.ended.set_result(None)
        self._checked_number = number

    def _ended_of(self, conn: sa.Connection, watched: Mapping[Access, tuple[Principal, Role]]) -> list[Access]:
        """Those whose session is over or whose user has too low a role, or whose key is revoked."""
        principals = [principal for principal, _ in watched.values()]
        hashes = {each.session.sha256 for each in principals if each.session is not None}
        roles = sessions.roles_of(conn, hashes, utc_now(), self._lifetime)
        keys = api_keys.valid_of(conn, {each.key.id for each in principals if each.key is not None})

        def holds(principal: Principal, least: Role) -> bool:
            if principal.session is not None:
                role = roles.get(principal.session.sha256)
                return role is not None and has_role(role, least)
            return principal.key is not None and principal.key.id in keys

        return [access for access, (principal, least) in watched.items() if not holds(principal, least)]

    def _close(self, access: Access) -> None:
        self._watched.pop(access, None)


ACCESS_WATCH: Final = web.AppKey("access_watch", AccessWatch)
