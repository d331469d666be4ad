"""Where a call that we make goes when whom it went to says nothing (RFC 3263 4.3) or points elsewhere (RFC 3261
8.1.3.4): the same leg goes on with another INVITE."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from sipcore.dialogs.invite import InvitePath, NotReached, OutboundInvite
from sipcore.dialogs.leg import Leg
from sipcore.dialogs.pj_call import PjCall
from sipcore.messages import reason_header
from sipcore.messages.contact import Contact

NO_RESPONSE_S: Final = 4.0
"""How long one of several addresses of a host may say nothing to an INVITE, not even 100; over UDP it has been sent 4
times by then. PJSIP tells of most connections that are refused at once; some it takes for ones that are being made."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class InviteFailure:
    """How a leg ends that goes on nowhere: status, reason phrase, and what the peer's Reason headers say."""

    code: int
    reason: str = ""
    why: reason_header.ReasonHeader = reason_header.NO_REASON


Send = Callable[[InvitePath, OutboundInvite], Awaitable[tuple[PjCall, Leg]]]
"""Sends an INVITE. Raises `NotReached`, or another `ConnectionError` that no other address helps against."""


@dataclass(frozen=True)
class InviteFailover:
    """Use it on the event loop. `belongs`: whether a call whose INVITE has been sent is the leg's; `send_again` makes a
    call for a leg in the place of the one before; `give_up` ends a call that nobody has answered and that the leg has
    to do with no more, False when somebody has; `end` ends the leg; `on_silent` hears of an address of a host that did
    not answer."""

    start: Callable[[Coroutine[Any, Any, None]], None]
    is_current: Callable[[PjCall, Leg], Awaitable[bool]]
    resend: Callable[[PjCall, Leg, InvitePath, OutboundInvite], Awaitable[tuple[PjCall, Leg]]]
    give_up: Callable[[PjCall], Awaitable[bool]]
    end: Callable[[int, Leg, InviteFailure], None]
    on_unresponsive: Callable[[str, str], None]

    async def send(self, invitation: OutboundInvite, send: Send) -> Leg:
        """Send the INVITE to the first address that can be reached. Raises `ConnectionError`."""
        while True:
            way = invitation.path()
            try:
                call, leg = await send(way, invitation)
            except NotReached:
                if way.is_last:
                    raise
                self._report_unresponsive(way, invitation)
                invitation = invitation.without(way)
                continue
            if not way.is_last:
                asyncio.get_running_loop().call_later(NO_RESPONSE_S, self._check_response, call, leg)
            return leg

    async def on_no_response(self, call: PjCall, leg: Leg, ending: InviteFailure) -> None:
        """The address could not be reached, or has no time (503)."""
        if await self.is_current(call, leg):
            await self._try_next(call, leg, ending, silent=ending.code == 0)

    async def on_redirected(self, call: PjCall, leg: Leg, contacts: Sequence[Contact], code: int) -> None:
        """Call the first contact that may be called; without any the leg ends."""
        if not await self._resend(call, leg, self._redirected(call, leg, contacts)):
            self.end(call.key, leg, InviteFailure(code))

    def _check_response(self, call: PjCall, leg: Leg) -> None:
        said = leg.ringing.done() or leg.answered.done() or leg.ended.done()
        if not said and not leg._hung_up:
            self.start(self._give_up_target(call, leg))

    async def _give_up_target(self, call: PjCall, leg: Leg) -> None:
        if await self.give_up(call):
            await self._try_next(call, leg, InviteFailure(0), silent=True)

    def _report_unresponsive(self, way: InvitePath, invitation: OutboundInvite) -> None:
        if way.target is not None:
            log.info("sip.silent", sip_call_id=invitation.sip_call_id, host=way.host, address=way.target.address)
            self.on_unresponsive(way.host, way.target.address)

    async def _try_next(self, call: PjCall, leg: Leg, ending: InviteFailure, *, silent: bool) -> None:
        """Try the next address; without any the leg ends."""
        if silent and call.path and call.invite:
            self._report_unresponsive(call.path, call.invite)
        if not await self._resend(call, leg, self._without_target(call, leg)):
            self.end(call.key, leg, ending)

    async def _without_target(self, call: PjCall, leg: Leg) -> OutboundInvite | None:
        assert call.invite is not None
        assert call.path is not None
        return None if leg._hung_up else call.invite.without(call.path)

    async def _redirected(self, call: PjCall, leg: Leg, contacts: Sequence[Contact]) -> OutboundInvite | None:
        invitation = call.invite
        assert invitation is not None
        assert invitation.follow is not None
        for contact in contacts if invitation.redirects_left > 0 else ():
            user = None if leg._hung_up else await invitation.follow(contact)
            if user is not None and not leg._hung_up:
                return invitation.redirect_to(user)
        return None

    async def _resend(self, call: PjCall, leg: Leg, whom: Awaitable[OutboundInvite | None]) -> bool:
        try:
            invitation = await whom
            if invitation is None:
                return False
            leg._begins_anew()
            await self.send(invitation, partial(self.resend, call, leg))
        except ConnectionError as error:
            log.info("sip.not_placed_again", sip_call_id=leg.sip_call_id, why=str(error))
            return False
        except Exception as error:
            log.error("sip.not_placed_again", sip_call_id=leg.sip_call_id, error=repr(error), exc_info=error)
            return False
        if leg._hung_up:  # while the INVITE was sent
            await leg.hangup()
        return True
