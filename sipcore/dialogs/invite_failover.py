"""Further INVITEs of the same leg: to the next target after a timeout or 503 (RFC 3263 4.3), to the Contact of a 3xx
(RFC 3261 8.1.3.4), or with required SRTP after a 488."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from sipcore.dialogs.invite import InvitePath, OutboundInvite
from sipcore.dialogs.invite_error import InviteError, TargetUnreachable
from sipcore.dialogs.leg_driver import LegDriver
from sipcore.dialogs.pj_call import PjCall
from sipcore.messages import headers
from sipcore.messages.contact import Contact
from sipcore.messages.reason_header import NO_REASON, ReasonHeader, parse_reason

RESPONSE_TIMEOUT_S: Final = 4.0
"""Time for the first response to an INVITE, 100 included, when the host has another target; over UDP the INVITE has
been sent 4 times by then. PJSIP reports most refused connections at once, but considers some of them in progress."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class InviteFailure:
    """The end of a leg when no other target answers: status, reason phrase, and the peer's Reason headers."""

    code: int
    reason: str = ""
    header: ReasonHeader = NO_REASON

    @classmethod
    def parse(cls, code: int, reason: str, reasons: str) -> InviteFailure:
        """`reason` and `reasons` (the values of the Reason headers) come from the peer."""
        return cls(code, headers.printable(reason), parse_reason(reasons))


Send = Callable[[InvitePath, OutboundInvite], Awaitable[tuple[PjCall, LegDriver]]]
"""Sends an INVITE. Raises `TargetUnreachable`, or another `InviteError` after which no other target is tried."""


@dataclass(frozen=True)
class InviteFailover:
    """`is_current` returns whether a call whose INVITE was sent still belongs to the leg. `resend` makes a call for a
    leg in place of the one before. `give_up` detaches a call without any response from its leg and ends it; returns
    False after a response. `end` ends the leg. `on_unresponsive` is called with a host and the address of it that did
    not respond. Event loop only."""

    start: Callable[[Coroutine[Any, Any, None]], None]
    is_current: Callable[[PjCall, LegDriver], Awaitable[bool]]
    resend: Callable[[PjCall, LegDriver, InvitePath, OutboundInvite], Awaitable[tuple[PjCall, LegDriver]]]
    give_up: Callable[[PjCall], Awaitable[bool]]
    end: Callable[[int, LegDriver, InviteFailure], None]
    on_unresponsive: Callable[[str, str], None]

    async def send(self, invite: OutboundInvite, send: Send) -> LegDriver:
        """Send the INVITE to the first target that can be reached. Raises `InviteError`."""
        while True:
            path = invite.path()
            try:
                call, driver = await send(path, invite)
            except TargetUnreachable:
                if path.is_last:
                    raise
                self._report_unresponsive(path, invite)
                invite = invite.without_target(path)
                continue
            if not path.is_last:
                asyncio.get_running_loop().call_later(RESPONSE_TIMEOUT_S, self._check_response, call, driver)
            return driver

    async def on_no_response(self, call: PjCall, driver: LegDriver, failure: InviteFailure) -> None:
        """The target could not be reached, or responded 503."""
        if await self.is_current(call, driver):
            await self._try_next(call, driver, failure, unresponsive=failure.code == 0)

    async def on_redirected(self, call: PjCall, driver: LegDriver, contacts: Sequence[Contact], code: int) -> None:
        """Call the first contact that `follow` accepts; without any the leg ends."""
        if not await self._resend(call, driver, self._redirect_invite(call, driver, contacts)):
            self.end(call.key, driver, InviteFailure(code))

    async def on_optional_srtp_refused(self, call: PjCall, driver: LegDriver, failure: InviteFailure) -> None:
        """An offer of RTP/AVP with keys got 488: offer RTP/SAVP, once."""
        if await self.is_current(call, driver) and not await self._resend(
            call, driver, self._savp_invite(call, driver)
        ):
            self.end(call.key, driver, failure)

    def _check_response(self, call: PjCall, driver: LegDriver) -> None:
        leg = driver.leg
        responded = leg.ringing.done() or leg.answered.done() or leg.ended.done()
        if not responded and not driver.hung_up:
            self.start(self._give_up_target(call, driver))

    async def _give_up_target(self, call: PjCall, driver: LegDriver) -> None:
        if await self.give_up(call):
            await self._try_next(call, driver, InviteFailure(0), unresponsive=True)

    def _report_unresponsive(self, path: InvitePath, invite: OutboundInvite) -> None:
        if path.target is not None:
            log.info("sip.silent", sip_call_id=invite.sip_call_id, host=path.host, address=path.target.address)
            self.on_unresponsive(path.host, path.target.address)

    async def _try_next(self, call: PjCall, driver: LegDriver, failure: InviteFailure, *, unresponsive: bool) -> None:
        """Send the INVITE to the next target; without any the leg ends."""
        if unresponsive and call.path and call.invite:
            self._report_unresponsive(call.path, call.invite)
        if not await self._resend(call, driver, self._failover_invite(call, driver)):
            self.end(call.key, driver, failure)

    async def _failover_invite(self, call: PjCall, driver: LegDriver) -> OutboundInvite | None:
        assert call.invite is not None
        assert call.path is not None
        return None if driver.hung_up else call.invite.without_target(call.path)

    async def _savp_invite(self, call: PjCall, driver: LegDriver) -> OutboundInvite | None:
        assert call.invite is not None
        return None if driver.hung_up else call.invite.with_srtp_required()

    async def _redirect_invite(
        self, call: PjCall, driver: LegDriver, contacts: Sequence[Contact]
    ) -> OutboundInvite | None:
        invite = call.invite
        assert invite is not None
        assert invite.follow is not None
        for contact in contacts if invite.redirects_left > 0 else ():
            user = None if driver.hung_up else await invite.follow(contact)
            if user is not None and not driver.hung_up:
                return invite.redirect_to(user)
        return None

    async def _resend(self, call: PjCall, driver: LegDriver, next_invite: Awaitable[OutboundInvite | None]) -> bool:
        """Send the next INVITE of the leg; returns False when there is none, or when it cannot be sent."""
        sip_call_id = driver.leg.sip_call_id
        try:
            invite = await next_invite
            if invite is None:
                return False
            driver.reset_early_media()
            await self.send(invite, partial(self.resend, call, driver))
        except InviteError as error:
            log.info("sip.not_placed_again", sip_call_id=sip_call_id, why=error.detail, kind=error.kind)
            return False
        except Exception as error:
            log.error("sip.not_placed_again", sip_call_id=sip_call_id, error=repr(error), exc_info=error)
            return False
        if driver.hung_up:  # while the INVITE was sent
            await driver.leg.hangup()
        return True
