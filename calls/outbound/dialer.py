"""Dialer: sends outbound INVITEs through the trunk of a phone number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from calls.admission.load_shedding import ModelLoadShedder
from calls.outbound.pacing import CallPacer
from calls.trunks.provisioning import trunk_destinations
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import Leg
from sipcore.messages.caller_identity import CallerIdentity
from sipcore.messages.contact import FollowContact
from sipcore.messages.headers import HeaderLines, NameAddr
from sipcore.trunks.trunk import Trunk
from storage.calls.calls import EndedReason
from storage.database.errors import StorageUnavailable
from storage.phone_numbers.carrier_presets import uses_preset
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy


def trunk_problem(number: PhoneNumber, *, tcp: bool) -> str | None:
    """Returns why no outbound call can be placed from this number; None if one can. `tcp`: this server has a SIP/TCP
    listener."""
    if number.source is None:
        remedy = f"[providers.{number.provider}]" if uses_preset(number) else "sipMode and its fields"
        return f"the number has no trunk: set {remedy}"
    if not tcp and any(each and each.transport == "tcp" for each in trunk_destinations(number)):
        return "its trunk uses SIP/TCP, for which this server has no listener"
    return None


CurrentNumber = Callable[[], Awaitable[PhoneNumber]]
"""Returns the number that a call is placed from, as it is stored now. Raises `InviteError` if it may not be placed."""


class SendInvite(Protocol):
    """Sends an INVITE: `sipcore.endpoint.Endpoint.call`."""

    def __call__(
        self,
        to: str,
        *,
        trunk: Trunk | None,
        caller: NameAddr | CallerIdentity | None,
        sip_call_id: str | None,
        headers: HeaderLines,
        follow: FollowContact | None,
    ) -> Awaitable[Leg]:
        """Returns the leg, as soon as the INVITE was sent. Raises `InviteError` if it cannot be sent."""


@dataclass(frozen=True, kw_only=True)
class OutboundDialer:
    """`trunk_of` returns the trunk of a number that has one, ready for use, or raises `InviteError`. `tcp`: this
    server has a SIP/TCP listener. With `load_shedder`, queued calls wait while the models cannot answer in time."""

    dial: SendInvite
    trunk_of: Callable[[PhoneNumber], Awaitable[Trunk]]
    pacer: CallPacer
    tcp: bool = True
    load_shedder: ModelLoadShedder | None = None
    trunk_policy: TrunkPolicy = "open"

    async def trunk(self, number: PhoneNumber) -> Trunk:
        """Returns the trunk of a number, ready for use. Raises `InviteError`."""
        problem = trunk_problem(number, tcp=self.tcp)
        if problem is not None:
            raise InviteError("trunk_unusable", problem)
        return await self.trunk_of(number)

    async def dial_transfer(
        self,
        number: CurrentNumber,
        to: str,
        headers: HeaderLines,
        ending: asyncio.Future[EndedReason],
        caller: CallerIdentity | None = None,
        follow: FollowContact | None = None,
    ) -> Leg:
        """Place the second leg of a transfer, unless the call is `ending` after the pacer's wait. `caller` None: the
        number. `follow` decides whether a 3xx is followed; None: never. Raises `InviteError`."""
        try:
            has_start = await self.pacer.wait_unless_ending(ending)
        except StorageUnavailable as error:
            raise InviteError("number_unavailable", f"no start can be reserved: {error.cause}") from error
        if not has_start:
            raise InviteError("call_ended", "the call has ended")
        current = await number()
        trunk = await self.trunk(current)
        if ending.done():
            raise InviteError("call_ended", "the call has ended")
        shown = caller or NameAddr(current.number, current.name or "")
        return await self.dial(to, trunk=trunk, caller=shown, sip_call_id=None, headers=headers, follow=follow)
