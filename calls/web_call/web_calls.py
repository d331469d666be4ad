"""The test calls of this process, and the tickets by which web_calls connect to them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final, Protocol

from calls.active_calls import ActiveCall
from calls.session.dependencies import CallDependencies
from calls.session.transfer.call_transfers import TransferDependencies
from calls.web_call.web_call import CONNECT_TIMEOUT_S, WebCall, WebConnection
from config.errors import Forbidden, Unavailable
from sipcore.audio.pcm_channel import PcmChannel
from sipcore.audio.pump import Pump
from sipcore.dialogs.pcm_leg import PcmLeg
from sipcore.endpoint import NoSlot
from storage.agents.agents import Agent
from storage.calls.calls import Call

TICKET_BYTES: Final = 32
INVALID_TICKET: Final = "The ticket is unknown, was used, or is older than 60 s: create another test call"


@dataclass(frozen=True)
class NewWebCall:
    """A test call that was stored. `ticket` opens its WebSocket once; `telephone`: it sounds like a telephone line."""

    call: Call
    agent: Agent
    ticket: str
    telephone: bool


class OpenChannel(Protocol):
    """`sipcore.endpoint.Endpoint.open_pcm_channel`."""

    def __call__(self, *, telephone: bool) -> Awaitable[tuple[PcmChannel, int]]:
        """Returns a channel and its slot. Raises `NoSlot`."""


def new_ticket() -> str:
    """Returns a ticket that nobody can guess."""
    return secrets.token_urlsafe(TICKET_BYTES)


@dataclass
class _Waiting:
    call: WebCall
    ticket: str
    until_s: float


class WebCalls:
    """Event loop only. `start` is called with each call that is to be run; `now_s` is a monotonic clock."""

    def __init__(
        self,
        deps: CallDependencies,
        transfer_dependencies: TransferDependencies | None,
        start: Callable[[ActiveCall], None],
        pump: Pump,
        open_channel: OpenChannel,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deps = deps
        self._transfer_dependencies = transfer_dependencies
        self._start = start
        self._pump = pump
        self._open_channel = open_channel
        self._now_s = now_s
        self._waiting: dict[str, _Waiting] = {}

    def add(self, new: NewWebCall) -> None:
        """Run a test call, which waits for its browser; returns at once."""
        self._waiting = {key: each for key, each in self._waiting.items() if each.until_s > self._now_s()}
        call = WebCall(new.call, new.agent, self._deps, self._transfer_dependencies, telephone=new.telephone)
        self._waiting[new.call.id] = _Waiting(call, new.ticket, self._now_s() + CONNECT_TIMEOUT_S)
        self._start(call)

    async def connect(self, call_id: str, ticket: str) -> WebConnection:
        """Connect a browser with its call, by the ticket, which works once. Raises `Forbidden` for an invalid ticket,
        `Conflict` if the call has ended, and `Unavailable` if there is no room for its audio."""
        waiting = self._waiting.get(call_id)
        if waiting is None or waiting.until_s <= self._now_s() or not _equal(ticket, waiting.ticket):
            raise Forbidden(INVALID_TICKET)
        del self._waiting[call_id]
        call = waiting.call
        try:
            channel, slot = await self._open_channel(telephone=call.telephone)
        except NoSlot as error:
            call.end("error")
            raise Unavailable("The server is full", 10) from error
        except asyncio.CancelledError:  # the ticket is used: nobody else can connect
            call.end("no_answer")
            raise
        leg = PcmLeg(self._pump, channel, slot, leg_id=call_id, direction=call.call.direction)
        try:
            return call.connect(leg)
        except BaseException:
            leg.release()
            raise


def _equal(given: str, expected: str) -> bool:
    return compare_digest(given.encode(errors="replace"), expected.encode())
