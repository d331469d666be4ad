"""The tickets by which people connect to the calls that they take over from their agents."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from calls.service import CallService
from calls.web_call.live_feed import LiveFeed
from calls.web_call.web_call import WebConnection
from calls.web_call.web_calls import OpenChannel, new_ticket
from config.errors import Unavailable
from sipcore.audio.pump import Pump
from sipcore.dialogs.pcm_leg import PcmLeg
from sipcore.endpoint import NoSlot

TICKET_S: Final = 60.0
"""Time for the person's browser to connect; the agent talks on until then."""


@dataclass(frozen=True)
class _Offer:
    call_id: str
    name: str
    until_s: float


class Takeovers:
    """Event loop only. `now_s` is a monotonic clock. `connect_other` connects the browsers of test calls."""

    def __init__(
        self,
        calls: CallService,
        pump: Pump,
        open_channel: OpenChannel,
        connect_other: Callable[[str, str], Awaitable[WebConnection]],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._calls = calls
        self._pump = pump
        self._open_channel = open_channel
        self._connect_other = connect_other
        self._now_s = now_s
        self._offers: dict[str, _Offer] = {}

    def offer(self, call_id: str, name: str) -> str:
        """Returns a ticket by which a person of this name takes the call over, once. Raises `Conflict` if the call is
        not in progress with its agent."""
        self._calls.check_takeover(call_id)
        self._offers = {ticket: each for ticket, each in self._offers.items() if each.until_s > self._now_s()}
        ticket = new_ticket()
        self._offers[ticket] = _Offer(call_id, name, self._now_s() + TICKET_S)
        return ticket

    async def connect(self, call_id: str, ticket: str) -> WebConnection:
        """Connect a browser by its ticket, with a call that is taken over by it or with its test call. Raises
        `Forbidden` for an invalid ticket, `Conflict` if the call is not in progress with its agent any more, and
        `Unavailable` if there is no room for its audio."""
        offer = self._offers.get(ticket)
        if offer is None or offer.call_id != call_id or offer.until_s <= self._now_s():
            return await self._connect_other(call_id, ticket)
        del self._offers[ticket]
        self._calls.check_takeover(call_id)
        try:
            channel, slot = await self._open_channel(telephone=False)
        except NoSlot as error:
            raise Unavailable("The server is full", 10) from error
        leg = PcmLeg(self._pump, channel, slot, leg_id=call_id, direction="outbound")
        try:
            ending = self._calls.take_over(call_id, leg, offer.name)
        except BaseException:
            leg.release()
            raise
        return WebConnection(leg, LiveFeed(), ending)
