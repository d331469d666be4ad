"""The events of each organization, and those who follow them: clients, and other nodes that merge them with their own
events. Without a follower an event costs one look-up."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from calls.live.node_subscription import NodeSubscription, Overtaken
from config.errors import LimitExceeded, Unavailable

EventName = Literal[
    "call.created",
    "call.updated",
    "call.turn",
    "call.ended",
    "call.refused",
    "transfer.updated",
    "number.updated",
    "document.updated",
    "capacity.updated",
    "model.updated",
    "model.deleted",
]
OF_ONE_NODE: Final = frozenset({"capacity.updated", "model.updated", "model.deleted"})
"""Events that other nodes do not get: each node has its own."""
RESYNC: Final = "resync"
"""The name of an event after events that are missing."""
MAX_EVENTS: Final = 4000
MAX_BYTES: Final = 4 * 1024 * 1024
"""Of the latest events of an organization, from which a follower can resume."""
KEEP_S: Final = 120.0
"""Time for which the events of an organization are kept when nobody follows them any more."""
MAX_FOLLOWERS_OF_ORGANIZATION: Final = 64
MAX_FOLLOWERS: Final = 512
RETRY_AFTER_S: Final = 30

Encode = Callable[[EventName, object], bytes]
"""Returns what an event tells, as JSON."""


@dataclass(frozen=True)
class LiveEvent:
    """An event as it is sent. `id`: a client that has seen it resumes after it."""

    id: str
    name: str
    data: bytes


class _Ring:
    """The latest events of one organization, numbered from 1 on; `epoch` tells this ring from others."""

    def __init__(self) -> None:
        self.epoch: Final = secrets.token_hex(6)
        self.last = 0
        self.followers = 0
        self.expiry: asyncio.TimerHandle | None = None
        self.changed = asyncio.get_running_loop().create_future()
        self._events: deque[LiveEvent] = deque()
        self._bytes = 0

    def add(self, name: str, data: bytes) -> None:
        self.last += 1
        self._events.append(LiveEvent(self.id_of(self.last), name, data))
        self._bytes += len(data)
        while len(self._events) > MAX_EVENTS or self._bytes > MAX_BYTES:
            self._bytes -= len(self._events.popleft().data)
        self.changed.set_result(None)
        self.changed = asyncio.get_running_loop().create_future()

    def id_of(self, number: int) -> str:
        return f"{self.epoch}-{number}"

    def number_of(self, event_id: str) -> int | None:
        """The number of one of the latest events, or of the one before them; None for any other id."""
        epoch, _, number = event_id.partition("-")
        if epoch != self.epoch or not number.isascii() or not number.isdecimal() or len(number) > 18:
            return None
        return int(number) if self._first - 1 <= int(number) <= self.last else None

    def after(self, number: int) -> list[LiveEvent]:
        """The events after this one. Raises `Overtaken` if the next one was dropped."""
        if number + 1 < self._first:
            raise Overtaken
        if number == self.last:
            return []
        return [self._events[at] for at in range(number + 1 - self._first, len(self._events))]

    @property
    def _first(self) -> int:
        return self.last - len(self._events) + 1


class Follower:
    """Follows the events of an organization from one point on, until `close`. `resumed` is False if the client has
    missed events that are not known any more."""

    def __init__(self, ring: _Ring, last_event_id: str | None, on_close: Callable[[], None]) -> None:
        known = None if last_event_id is None else ring.number_of(last_event_id)
        self.resumed: Final = last_event_id is None or known is not None
        self._ring = ring
        self._number = ring.last if known is None else known
        self._on_close: Callable[[], None] | None = on_close

    @property
    def last_id(self) -> str:
        """The id of the latest event that was taken, or before which the follower has begun."""
        return self._ring.id_of(self._number)

    def take(self) -> list[LiveEvent]:
        """Returns the events since the last call. Raises `Overtaken`."""
        events = self._ring.after(self._number)
        self._number += len(events)
        return events

    @property
    def has_news(self) -> bool:
        """True if `take` returns events."""
        return self._number < self._ring.last

    @property
    def changed(self) -> asyncio.Future[None]:
        """Done at the next event; never cancel it."""
        return self._ring.changed

    def close(self) -> None:
        """Stop. Idempotent."""
        if self._on_close is not None:
            on_close, self._on_close = self._on_close, None
            on_close()


class LiveEvents:
    """For the event loop, except `is_followed`. `encode` makes the JSON of an event once, for all followers."""

    def __init__(self) -> None:
        self.encode: Encode | None = None
        """Set before anybody follows."""
        self.on_followed: Callable[[str], None] = lambda _: None
        """Called with an organization that is followed for the first time, or again."""
        self.on_followed_change: Callable[[], None] = lambda: None
        """Called when clients begin or cease to follow an organization."""
        self.published = 0
        """Events that were told so far."""
        self._rings: dict[str, _Ring] = {}
        self._followers = 0
        self._nodes: frozenset[NodeSubscription] = frozenset()

    def is_followed(self, organization_id: str) -> bool:
        """True if a client or another node follows the organization's events, or may resume. Any thread."""
        return organization_id in self._rings or any(organization_id in each.organizations for each in self._nodes)

    def followed(self) -> Iterable[str]:
        """The organizations whose events clients of this node follow."""
        return list(self._rings)

    def publish(
        self, organization_id: str, name: EventName, subject: Callable[[], object], *, of_this_node: bool = False
    ) -> None:
        """Tell the followers of an organization what `subject` returns, which is called only if there are any.
        `of_this_node`: other nodes tell their clients the same by themselves."""
        ring = self._rings.get(organization_id)
        of_nodes = [] if of_this_node or name in OF_ONE_NODE else self._nodes
        nodes = [each for each in of_nodes if organization_id in each.organizations]
        if self.encode is None or (ring is None and not nodes):
            return
        data = self.encode(name, subject())
        self.published += 1
        if ring is not None:
            ring.add(name, data)
        for each in nodes:
            each.add(organization_id, name, data)

    def add(self, organization_id: str, name: str, data: bytes) -> None:
        """Tell the clients that follow an organization an event of another node, or that they have missed some."""
        ring = self._rings.get(organization_id)
        if ring is not None:
            ring.add(name, data)

    def subscribe(self) -> NodeSubscription:
        """Follow for another node; the caller sets the organizations, and closes the subscription."""
        subscription = NodeSubscription(self._unsubscribe)
        self._nodes |= {subscription}
        return subscription

    def _unsubscribe(self, subscription: NodeSubscription) -> None:
        self._nodes -= {subscription}

    def follow(self, organization_id: str, last_event_id: str | None = None) -> Follower:
        """Follow the events of an organization, after the one with this id or from now on. Raises `LimitExceeded` or
        `Unavailable` if too many do."""
        ring = self._rings.get(organization_id)
        if ring is not None and ring.followers >= MAX_FOLLOWERS_OF_ORGANIZATION:
            limit = MAX_FOLLOWERS_OF_ORGANIZATION
            raise LimitExceeded(f"The organization has {limit} event streams, the most there may be", RETRY_AFTER_S)
        if self._followers >= MAX_FOLLOWERS:
            raise Unavailable("The server has too many event streams", RETRY_AFTER_S)
        if ring is None:
            ring = self._rings[organization_id] = _Ring()
            self.on_followed(organization_id)
            self.on_followed_change()
        if ring.expiry is not None:
            ring.expiry.cancel()
            ring.expiry = None
        ring.followers += 1
        self._followers += 1
        return Follower(ring, last_event_id, lambda: self._on_close(organization_id, ring))

    def _on_close(self, organization_id: str, ring: _Ring) -> None:
        ring.followers -= 1
        self._followers -= 1
        if not ring.followers:
            loop = asyncio.get_running_loop()
            ring.expiry = loop.call_later(KEEP_S, self._expire, organization_id)

    def _expire(self, organization_id: str) -> None:
        self._rings.pop(organization_id, None)
        self.on_followed_change()
