"""The calls that are active in this process, and those that the database still takes for open."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from calls.post_call.outage_buffer import OutageBuffer
from calls.session.call_listener import CallListener
from calls.session.call_snapshot import CallSnapshot
from calls.session.transfer.child_call import ChildCall, UnplacedChildCall
from sipcore.dialogs.call_leg import CallLeg
from storage.calls.calls import Call, EndedReason
from storage.calls.transfers import Transfer, TransferOrder


class ActiveCall(Protocol):
    """A call between the storing of its row and its stored end."""

    call: Call

    @property
    def has_leg(self) -> bool:
        """True once the call has a SIP leg."""

    def snapshot(self) -> CallSnapshot:
        """The state of the call at this moment."""

    def end(self, reason: EndedReason) -> None:
        """End the call; the first reason counts."""

    async def transfer(self, order: TransferOrder) -> Transfer:
        """Start a transfer that a client asks for; returns it as stored."""

    def whisper(self, text: str, author: str) -> None:
        """Give the agent a note. Raises `Conflict` if the call is not in progress with the agent."""

    def check_takeover(self) -> None:
        """Raises `Conflict` if the call is not in progress with the agent."""

    def take_over(self, leg: CallLeg, name: str) -> asyncio.Future[EndedReason]:
        """Connect a person with the caller in the agent's place."""

    def listen(self) -> CallListener:
        """Listen in. Raises `Conflict` if the call is not in progress."""

    def set_held(self, on: bool) -> None:
        """Put the other side on hold, or resume the call."""

    async def run(self) -> None:
        """Run the call until its end is stored. Raises `StorageUnavailable` if that fails."""


class ActiveCalls:
    """The active calls of this process, each with the task that runs it. Event loop only, except `ended_but_open`."""

    def __init__(self, buffer: OutageBuffer) -> None:
        """`buffer`: what cannot be stored of calls for the time being."""
        self._buffer = buffer
        self._calls: dict[str, tuple[ActiveCall, asyncio.Task[None]]] = {}
        self._lost_ends: frozenset[str] = frozenset()
        """Ids of calls that have ended, but are open in the database until the next start."""
        self.child_calls: Final = dict[str, ChildCall | UnplacedChildCall]()
        """The second legs of transfers, by the id of their call."""

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._calls

    @property
    def count(self) -> int:
        """Calls that count against the limits: queued here, ringing or answered."""
        return sum(not call.call.is_chat for call in self.all())

    def count_with_leg(self) -> int:
        """Calls with a SIP leg."""
        return sum(call.has_leg for call in self.all())

    @property
    def ended_but_open(self) -> frozenset[str]:
        """Ids of calls that have ended, but are still open in the database. Any thread."""
        return self._lost_ends | self._buffer.ended_calls

    def known_ids(self) -> frozenset[str]:
        """Ids of the active calls and of those that have ended, but are still open in the database."""
        return self.ended_but_open.union(self._calls)

    def all(self) -> list[ActiveCall]:
        """The calls that are active now."""
        return [call for call, _ in self._calls.values()]

    def find(self, call_id: str) -> ActiveCall | None:
        """Returns an active call; None: it is not active in this process."""
        return self._calls[call_id][0] if call_id in self._calls else None

    def task_of(self, call_id: str) -> asyncio.Task[None]:
        """Returns the task of an active call."""
        return self._calls[call_id][1]

    def add(self, call: ActiveCall, task: asyncio.Task[None]) -> None:
        """Make the call active."""
        self._calls[call.call.id] = call, task

    def remove(self, call_id: str) -> None:
        """The call is not active any more."""
        del self._calls[call_id]

    def on_end_lost(self, call_id: str) -> None:
        """The end of a call could not be stored: it does not count any more, and the next start closes it."""
        self._lost_ends |= {call_id}
