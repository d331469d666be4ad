"""Where a call that we make goes when whom it went to says nothing (RFC 3263 4.3) or points elsewhere (RFC 3261
8.1.3.4): the same leg goes on with another INVITE."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from sipcore import cause
from sipcore.contacts import Contact
from sipcore.leg import Leg
from sipcore.ways import Invitation

if TYPE_CHECKING:
    from sipcore.dialog import CallObject

PATIENCE_S: Final = 4.0
"""How long one of several addresses of a host may say nothing to an INVITE, not even 100; over UDP it has been sent 4
times by then."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Ending:
    """How a leg ends that goes on nowhere: status, reason phrase, and what the peer's Reason headers say."""

    code: int
    reason: str = ""
    why: cause.Reason = cause.UNTOLD


@dataclass(frozen=True)
class Onward:
    """Use it on the event loop. `belongs`: whether a call is still the leg's; `place_again` sends the INVITE for the
    leg; `give_up` ends a call that nobody has answered and that the leg has to do with no more, False when somebody
    has; `end` ends the leg; `on_silent` hears of an address of a host that did not answer."""

    start: Callable[[Coroutine[Any, Any, None]], None]
    belongs: Callable[[CallObject, Leg], bool]
    place_again: Callable[[CallObject, Leg, Invitation], Awaitable[None]]
    give_up: Callable[[CallObject], Awaitable[bool]]
    end: Callable[[int, Leg, Ending], None]
    on_silent: Callable[[str, str], None]

    def watch(self, call: CallObject, leg: Leg) -> None:
        """An INVITE has been sent: when nobody answers it there may be another address."""
        if call.way is not None and not call.way.last:
            asyncio.get_running_loop().call_later(PATIENCE_S, self._look, call, leg)

    async def unheard(self, call: CallObject, leg: Leg, ending: Ending) -> None:
        """The address could not be reached, or has no time (503)."""
        if self.belongs(call, leg):
            await self._next(call, leg, ending, silent=ending.code == 0)

    async def redirected(self, call: CallObject, leg: Leg, contacts: Sequence[Contact], code: int) -> None:
        """Call the first contact that may be called; without any the leg ends."""
        if not await self._is_placed(call, leg, self._whom(call, leg, contacts)):
            self.end(call.key, leg, Ending(code))

    def _look(self, call: CallObject, leg: Leg) -> None:
        if self._is_waiting(call, leg):
            self.start(self._lose_patience(call, leg))

    def _is_waiting(self, call: CallObject, leg: Leg) -> bool:
        said = leg.rings.done() or leg.answered.done() or leg.ended.done()
        return not said and not leg._hung_up and self.belongs(call, leg)

    async def _lose_patience(self, call: CallObject, leg: Leg) -> None:
        if await self.give_up(call):
            await self._next(call, leg, Ending(0), silent=True)

    async def _next(self, call: CallObject, leg: Leg, ending: Ending, *, silent: bool) -> None:
        """Try the next address; without any the leg ends."""
        way = call.way
        if silent and way and way.target:
            log.info("sip.silent", sip_call_id=leg.sip_call_id, host=way.host, address=way.target.address)
            self.on_silent(way.host, way.target.address)
        if not await self._is_placed(call, leg, self._past(call, leg)):
            self.end(call.key, leg, ending)

    async def _past(self, call: CallObject, leg: Leg) -> Invitation | None:
        assert call.invitation is not None
        assert call.way is not None
        return None if leg._hung_up else call.invitation.past(call.way)

    async def _whom(self, call: CallObject, leg: Leg, contacts: Sequence[Contact]) -> Invitation | None:
        invitation = call.invitation
        assert invitation is not None
        assert invitation.follow is not None
        for contact in contacts if invitation.redirects > 0 else ():
            user = None if leg._hung_up else await invitation.follow(contact)
            if user is not None and not leg._hung_up:
                return invitation.to(user)
        return None

    async def _is_placed(self, call: CallObject, leg: Leg, whom: Awaitable[Invitation | None]) -> bool:
        try:
            invitation = await whom
            if invitation is None:
                return False
            leg._begins_anew()
            await self.place_again(call, leg, invitation)
        except ConnectionError as error:
            log.info("sip.not_placed_again", sip_call_id=leg.sip_call_id, why=str(error))
            return False
        except Exception as error:
            log.error("sip.not_placed_again", sip_call_id=leg.sip_call_id, error=repr(error), exc_info=error)
            return False
        if leg._hung_up:  # while the INVITE was sent
            await leg.hangup()
        return True
