"""Sends `call.turn`, which is live: it is not stored, is tried twice, and expires. A receiver that hangs or fails
delays no call, no stored event and no other organization; other receivers of its organization it can delay by seconds,
until it rests."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import structlog

from calls import metrics
from calls.fair_semaphore import FairSemaphore
from calls.http_egress.client import HttpEgressClient
from calls.webhooks.event_request import AttemptResult, DeliveryPolicy, EventRequest, send_event
from config.secrets import Secrets
from storage.webhooks.deliveries import EventReceiver

EXPIRES_S: Final = 30.0
"""Age after which a turn is not sent any more."""
ATTEMPTS: Final = 2
RETRY_S: Final = 1.0
"""Between the two attempts."""
TIMEOUT_S: Final = 5.0
"""Time for a response, where `DeliveryPolicy.timeout_s` is not shorter."""
MAX_WAITING: Final = 200
"""Turns that wait for one receiver; further ones are dropped."""
CALLS_AT_A_TIME: Final = 4
"""Calls whose turns are sent to one receiver at once; the turns of a call are sent one after another."""
MAX_REQUESTS: Final = 128
MAX_REQUESTS_OF_ORGANIZATION: Final = 16
FAILURES: Final = 3
"""Turns in a row that fail before the receiver rests."""
REST_S: Final = 30.0
"""Time for which a receiver that fails gets no turns."""
MAX_IDLE_RECEIVERS: Final = 1000
"""Receivers without turns that are remembered because they have failed."""
CLOSE_WAIT_S: Final = 2.0
"""Time for the last turns when the server stops."""

log = structlog.get_logger()


@dataclass(frozen=True)
class LiveTurn:
    """One turn for one receiver. `body` has the bytes of the event."""

    organization_id: str
    call_id: str
    receiver: EventReceiver
    body: bytes = field(repr=False)
    id: str = field(default_factory=lambda: str(uuid4()))
    at_s: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class _ReceiverQueue:
    """The turns for a receiver, by call."""

    calls: dict[str, deque[LiveTurn]] = field(default_factory=dict)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_AT_A_TIME))
    waiting: int = 0
    failures: int = 0
    rests_until_s: float = 0.0

    @property
    def rests(self) -> bool:
        return time.monotonic() < self.rests_until_s

    @property
    def is_forgettable(self) -> bool:
        return not self.calls and not self.failures and not self.rests


class LiveTurnSender:
    """`put` queues a turn and returns at once. The turns of a call reach a receiver that answers in order."""

    def __init__(self, client: HttpEgressClient | None, secrets: Secrets, policy: DeliveryPolicy) -> None:
        """Without a `client` nothing is sent."""
        self._client = client
        self._secrets = secrets
        self._policy = policy
        self._receivers: dict[tuple[str, str], _ReceiverQueue] = {}
        self._slots = FairSemaphore(MAX_REQUESTS, MAX_REQUESTS_OF_ORGANIZATION)
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this work in the background, until `close` at most."""
        task = asyncio.create_task(work, context=Context(), name="live turns")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def put(self, turn: LiveTurn) -> None:
        """Queue a turn; drop it if its receiver rests or has too many."""
        if self._client is None:
            return
        key = turn.organization_id, turn.receiver.url
        if len(self._receivers) >= MAX_IDLE_RECEIVERS:
            self._receivers = {each: queue for each, queue in self._receivers.items() if queue.calls or queue.rests}
        receiver = self._receivers.setdefault(key, _ReceiverQueue())
        if receiver.rests or receiver.waiting >= MAX_WAITING:
            metrics.WEBHOOK_TURNS.labels(outcome="dropped").inc()
            return
        receiver.waiting += 1
        if turn.call_id in receiver.calls:
            receiver.calls[turn.call_id].append(turn)
        else:
            receiver.calls[turn.call_id] = deque([turn])
            self.spawn(self._send_all(self._client, key, receiver, turn.call_id))

    async def close(self) -> None:
        """Send what waits for at most `CLOSE_WAIT_S`, and drop the rest."""
        until_s = time.monotonic() + CLOSE_WAIT_S
        while self._tasks and (left_s := until_s - time.monotonic()) > 0:  # tasks of turn feeds begin others
            await asyncio.wait(set(self._tasks), timeout=left_s)
        left = {task for task in self._tasks if not task.done()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
            log.warning("webhook.turns_dropped", calls=len(left))

    async def _send_all(
        self, client: HttpEgressClient, key: tuple[str, str], receiver: _ReceiverQueue, call_id: str
    ) -> None:
        """Send the turns of one call to one receiver until there are none."""
        turns = receiver.calls[call_id]
        try:
            while turns:
                outcome = await self._deliver(client, receiver, turns[0])
                metrics.WEBHOOK_TURNS.labels(outcome=outcome).inc()
                turns.popleft()
                receiver.waiting -= 1
        finally:
            receiver.waiting -= len(turns)
            del receiver.calls[call_id]
            if receiver.is_forgettable:
                self._receivers.pop(key, None)

    async def _deliver(self, client: HttpEgressClient, receiver: _ReceiverQueue, turn: LiveTurn) -> str:
        """Returns what came of a turn: sent, failed or dropped."""
        for attempt in range(1, ATTEMPTS + 1):
            async with receiver.slots, self._slots.slot(turn.organization_id):
                if receiver.rests or time.monotonic() - turn.at_s > EXPIRES_S:
                    return "dropped"
                result = await self._send(client, turn, attempt)
            if result.succeeded:
                receiver.failures = 0
                return "sent"
            if attempt < ATTEMPTS:
                await asyncio.sleep(RETRY_S)
        receiver.failures += 1
        if receiver.failures >= FAILURES:
            receiver.failures, receiver.rests_until_s = 0, time.monotonic() + REST_S
        log.warning(
            "webhook.turn_failed",
            call_id=turn.call_id,
            response_status=result.status,
            error=result.error,
            rests=receiver.rests,
        )
        return "failed"

    async def _send(self, client: HttpEgressClient, turn: LiveTurn, attempt: int) -> AttemptResult:
        request = EventRequest(
            delivery_id=turn.id,
            event="call.turn",
            attempt=attempt,
            url=turn.receiver.url,
            body=turn.body,
            secret_encrypted=turn.receiver.secret_encrypted,
            owner=turn.organization_id,
        )
        timeout_s = min(TIMEOUT_S, self._policy.timeout_s)
        return await send_event(request, client, self._secrets, self._policy, timeout_s)
