"""Phones that receive calls of the server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.trunkline.sip_phone import EVENT, PhoneCall


class ReceivedCall(PhoneCall):
    """A received G.711 call; entering it answers the call."""

    def __init__(self, callee: RawCallee) -> None:
        super().__init__(callee.phone, callee.number)
        self.callee = callee

    async def __aenter__(self) -> Self:
        self.callee.answer()
        await self.callee.next_request("ACK")
        self._talking = asyncio.create_task(self._talk())
        return self

    def _send_bye(self) -> None:
        self.phone.send(self.callee.request("BYE"))

    async def reinvite(self, sdp: str) -> Message:
        """Send a re-INVITE with this offer; returns its final response, acknowledged."""
        return await self.callee.reinvite(sdp)

    async def hang_up(self) -> None:
        """Send BYE, and wait for 200."""
        await self.callee.hang_up()


class TargetCall(ReceivedCall):
    """The target's call. Its keys have the payload type of the server's offer."""

    async def __aenter__(self) -> Self:
        offered = re.search(r"a=rtpmap:(\d+) telephone-event/8000", self.callee.invite.body)
        assert offered is not None
        self.event_kind = int(offered[1])
        self.callee.answer(self.offer(), *self.headers)
        await self.callee.next_request("ACK")
        self._talking = asyncio.create_task(self._talk())
        return self

    def offer(self, codecs: str = "0 101", *attributes: str) -> str:
        return super().offer(codecs, *attributes).replace(str(EVENT), str(self.event_kind))


class TrunkPhone:
    """A phone at a trunk's address, on `port`."""

    def __init__(self, phone: RawPhone) -> None:
        self.phone = phone
        self.port = phone.sip.port

    async def called(self) -> RawCallee:
        """Wait for an INVITE; returns the unanswered call."""
        return await RawCallee.wait_for_invite(self.phone)


@asynccontextmanager
async def trunk_phone(target: str) -> AsyncIterator[TrunkPhone]:
    """A phone that the server at `target` may call."""
    async with RawPhone(target) as phone:
        yield TrunkPhone(phone)
