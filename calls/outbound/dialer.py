"""Sends outbound INVITEs through the trunk of a phone number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from calls.admission.model_load import ModelLoadShedder
from calls.outbound.pacing import CallPacer
from calls.trunks.provisioning import trunk_destinations
from sipcore.dialogs.leg import Leg
from sipcore.messages.contact import FollowContact
from sipcore.messages.headers import HeaderLines, NameAddr
from sipcore.trunks.trunk import Trunk
from storage.calls.calls import EndedReason
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.phone_numbers.trunk_rules import Policy


def trunk_problem(number: PhoneNumber, *, tcp: bool) -> str | None:
    """Why no call can go out from this number; None when one can. `tcp`: this server speaks SIP over TCP."""
    if number.source is None:
        return "the number has no trunk: set sipMode and its fields"
    if not tcp and any(place and place.transport == "tcp" for place in trunk_destinations(number)):
        return "its trunk is reached over TCP, which this server does not speak"
    return None


class SendInvite(Protocol):
    """Sends an INVITE: `sipcore.endpoint.Endpoint.call`."""

    def __call__(
        self,
        to: str,
        *,
        trunk: Trunk | None,
        caller: NameAddr | None,
        sip_call_id: str | None,
        headers: HeaderLines,
        follow: FollowContact | None,
    ) -> Awaitable[Leg]:
        """The leg, as soon as the INVITE is on its way. Raises `ConnectionError` when it cannot be sent."""


@dataclass(frozen=True)
class OutboundDialer:
    """How calls leave. `trunk_of` gives the trunk of a number that has one, ready for use, or raises `ConnectionError`.
    `tcp`: this server speaks SIP over TCP. With `load`, calls wait until the models keep up."""

    dial: SendInvite
    trunk_of: Callable[[PhoneNumber], Awaitable[Trunk]]
    pacer: CallPacer
    tcp: bool = True
    load_shedder: ModelLoadShedder | None = None
    trunk_policy: Policy = "open"

    async def trunk(self, number: PhoneNumber) -> Trunk:
        """The trunk of a number, ready for use. Raises `ConnectionError`."""
        problem = trunk_problem(number, tcp=self.tcp)
        if problem is not None:
            raise ConnectionError(problem)
        return await self.trunk_of(number)

    async def dial_transfer(
        self, number: CurrentNumber, to: str, headers: HeaderLines, ending: asyncio.Future[EndedReason]
    ) -> Leg:
        """Call somebody for a call that goes on with them, unless it is `ending` when its turn has come. Raises
        `ConnectionError`."""
        if not await self.pacer.wait_unless_ending(ending):
            raise ConnectionError("the call has ended")
        now = await number()
        trunk = await self.trunk(now)
        if ending.done():
            raise ConnectionError("the call has ended")
        caller = NameAddr(now.number, now.name or "")
        return await self.dial(to, trunk=trunk, caller=caller, sip_call_id=None, headers=headers, follow=None)


CurrentNumber = Callable[[], Awaitable[PhoneNumber]]
"""The number that a call is made from, as it is stored now. Raises `ConnectionError` when none may be made."""
