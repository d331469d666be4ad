"""The turns of one call on their way to the receivers of `call.turn`, and to those who follow the call live."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol

import structlog

from calls import metrics
from calls.call_record.finished_turn import FinishedTurn
from calls.webhooks.call_events import event_body
from calls.webhooks.live_turns import LiveTurn, LiveTurnSender
from config.clock import utc_now
from storage.calls.calls import Call, TranscriptItem
from storage.database.errors import StorageUnavailable
from storage.webhooks.deliveries import EventReceiver

MAX_WAITING: Final = 100
"""Turns that wait for redaction, or for the receivers to be known; further ones are dropped."""
CONTEXT_TURNS: Final = 50
"""Earlier turns with which a turn is redacted, because a number may be spread over several."""

ReadReceivers = Callable[[], Awaitable[Sequence[EventReceiver]]]
"""Returns who gets the turns of the call's agent now."""
Redact = Callable[[Sequence[TranscriptItem]], list[TranscriptItem]]
"""Returns the items of a transcript redacted."""

log = structlog.get_logger()


class TurnFollower(Protocol):
    """Gets the turns besides the receivers, on the event loop. No method raises."""

    def is_followed(self) -> bool:
        """True if somebody wants the turns now."""

    def times(self) -> Mapping[str, Any]:
        """The newest entry of the timeline, as it is stored."""

    def on_redacted_turn(self, sequence: int, turn: FinishedTurn, times: Mapping[str, Any]) -> None:
        """Called with each turn that is wanted, in order, its text redacted; `sequence` counts all turns from 1."""


@dataclass(frozen=True)
class _WaitingTurn:
    sequence: int
    at: datetime
    turn: FinishedTurn
    times: Mapping[str, Any] | None
    """None: it is not followed."""


class TurnFeed:
    """`on_turn` takes each finished turn; it returns at once and never raises. Turns before `start` wait for it."""

    def __init__(self, sender: LiveTurnSender, call: Call, follower: TurnFollower) -> None:
        self._sender = sender
        self._call = call
        self._follower = follower
        self._receivers: Sequence[EventReceiver] | None = None
        self._redact: Redact | None = None
        self._read: ReadReceivers | None = None
        self._earlier: deque[TranscriptItem] = deque(maxlen=CONTEXT_TURNS)
        self._waiting: deque[_WaitingTurn] = deque()
        self._working = False
        self._sequence = 0

    def start(self, receivers: Sequence[EventReceiver], redact: Redact | None, read: ReadReceivers) -> None:
        """Begin to send to these receivers: to an endpoint as long as `read` has it unchanged. `redact` None: nothing
        is redacted."""
        self._receivers, self._redact, self._read = receivers, redact, read
        self._work()

    def on_turn(self, turn: FinishedTurn) -> None:
        """Send a turn."""
        self._sequence += 1
        times = self._follower.times() if self._follower.is_followed() else None
        if self._receivers is not None and not self._receivers and times is None:
            self._earlier.append(_item_of(turn))
            return
        if len(self._waiting) >= MAX_WAITING:
            metrics.WEBHOOK_TURNS.labels(outcome="dropped").inc()
            return
        self._waiting.append(_WaitingTurn(self._sequence, utc_now(), turn, times))
        self._work()

    def _work(self) -> None:
        if self._receivers is not None and self._waiting and not self._working:
            self._working = True
            self._sender.spawn(self._send_waiting())

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                waiting = self._waiting.popleft()
                if waiting.times is None and not self._receivers:
                    self._earlier.append(_item_of(waiting.turn))
                    continue
                turn = replace(waiting.turn, text=await self._redacted(waiting.turn))
                if waiting.times is not None:
                    self._follower.on_redacted_turn(waiting.sequence, turn, waiting.times)
                if receivers := await self._present_receivers():
                    body = event_body(self._call, "call.turn", waiting.at, self._details(waiting.sequence, turn))
                    for receiver in receivers:
                        self._sender.put(LiveTurn(self._call.organization_id, self._call.id, receiver, body))
        except Exception as error:
            self._receivers = ()
            self._waiting.clear()
            log.error("webhook.turns_broken", call_id=self._call.id, error=repr(error), exc_info=error)
        finally:
            self._working = False

    async def _present_receivers(self) -> Sequence[EventReceiver]:
        """The receivers without those endpoints that were changed, disabled or deleted."""
        assert self._receivers is not None and self._read is not None
        if any(each.endpoint_id for each in self._receivers):
            try:
                present = await self._read()
            except StorageUnavailable:
                return self._receivers
            self._receivers = [each for each in self._receivers if each.endpoint_id is None or each in present]
        return self._receivers

    def _details(self, sequence: int, turn: FinishedTurn) -> dict[str, Any]:
        return {
            "turn": {
                "sequence": sequence,
                "role": turn.role,
                "speaker": turn.speaker,
                "text": turn.text,
                "startMs": turn.start_ms,
                "endMs": turn.end_ms,
                "interrupted": turn.interrupted,
            },
            "metadata": self._call.metadata,
        }

    async def _redacted(self, turn: FinishedTurn) -> str:
        """Returns the text, redacted on a thread together with earlier turns."""
        self._earlier.append(_item_of(turn))
        if self._redact is None:
            return turn.text
        redacted = await asyncio.to_thread(self._redact, list(self._earlier))
        return redacted[-1]["content"]


def _item_of(turn: FinishedTurn) -> TranscriptItem:
    item: TranscriptItem = {"role": turn.role, "content": turn.text}
    if turn.speaker is not None:
        item["speaker"] = turn.speaker
    return item
