"""The turns of one call on their way to the receivers of `call.turn`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final

import structlog

from calls import metrics
from calls.call_record.finished_turn import FinishedTurn
from calls.webhooks.call_events import event_body
from calls.webhooks.live_turns import LiveTurn, LiveTurnSender
from config.clock import utc_now
from storage.calls.calls import Call, TranscriptItem
from storage.database.database import StorageUnavailable
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


class TurnFeed:
    """`on_turn` takes each finished turn; it returns at once and never raises. Turns before `start` wait for it."""

    def __init__(self, sender: LiveTurnSender, call: Call) -> None:
        self._sender = sender
        self._call = call
        self._receivers: Sequence[EventReceiver] | None = None
        self._redact: Redact | None = None
        self._read: ReadReceivers | None = None
        self._earlier: deque[TranscriptItem] = deque(maxlen=CONTEXT_TURNS)
        self._waiting: deque[tuple[int, datetime, FinishedTurn]] = deque()
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
        if self._receivers is not None and not self._receivers:
            return
        if len(self._waiting) >= MAX_WAITING:
            metrics.WEBHOOK_TURNS.labels(outcome="dropped").inc()
            return
        self._waiting.append((self._sequence, utc_now(), turn))
        self._work()

    def _work(self) -> None:
        if self._receivers is None:
            return
        if not self._receivers:
            self._waiting.clear()
        elif self._waiting and not self._working:
            self._working = True
            self._sender.spawn(self._send_waiting())

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                sequence, at, turn = self._waiting.popleft()
                body = event_body(self._call, "call.turn", at, await self._details(sequence, turn))
                for receiver in await self._present_receivers():
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

    async def _details(self, sequence: int, turn: FinishedTurn) -> dict[str, Any]:
        return {
            "turn": {
                "sequence": sequence,
                "role": turn.role,
                "speaker": turn.speaker,
                "text": await self._redacted(turn),
                "startMs": turn.start_ms,
                "endMs": turn.end_ms,
                "interrupted": turn.interrupted,
            },
            "metadata": self._call.metadata,
        }

    async def _redacted(self, turn: FinishedTurn) -> str:
        """Returns the text, redacted on a thread together with earlier turns."""
        if self._redact is None:
            return turn.text
        item: TranscriptItem = {"role": turn.role, "content": turn.text}
        if turn.speaker is not None:
            item["speaker"] = turn.speaker
        self._earlier.append(item)
        redacted = await asyncio.to_thread(self._redact, list(self._earlier))
        return redacted[-1]["content"]
