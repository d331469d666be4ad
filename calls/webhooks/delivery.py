"""Webhook delivery from the outbox: signed, with the same bytes in each attempt, successful by status 200 within the
timeout."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from secrets import token_hex
from typing import Final, Protocol, TypeVar

import sqlalchemy as sa
import structlog

from calls import metrics
from calls.http_egress.client import HttpEgressClient
from calls.webhooks.event_request import AttemptResult, DeliveryPolicy, EventRequest, send_event
from calls.webhooks.receiver_concurrency import ReceiverConcurrency, ReceiverSpeed
from calls.webhooks.retry_backoff import next_attempt_at
from config.clock import utc_now
from config.secrets import Secrets
from storage.database.database import Database
from storage.database.duplicate_filter import DuplicateFilter
from storage.database.errors import StorageUnavailable
from storage.webhooks import attempt_claims, deliveries
from storage.webhooks.attempt_claims import DueDestination
from storage.webhooks.deliveries import DeliveryAttempt, DueAttempt

RETRY_S: Final = 5.0
"""The wait after a failure to read the outbox."""
STORE_RETRY_S: Final = 2.0
"""The wait after a failure to store a result: after an outage it is stored before other nodes take its attempt over."""
DRAIN_STORE_S: Final = 10.0
"""How long a drain waits at most, after the timeout of the attempts under way, until the database has taken their
results: otherwise another node or the next start makes them again."""
CHECK_EVERY_S: Final = 10.0
"""Interval of reads of the outbox without a `wake`, because claims of other processes expire and clocks are set."""
HELD_S: Final = 1.0
"""The wait when all that is due waits for earlier events of its calls, or was claimed by another process."""
MAX_ORDER_WAIT_S: Final = 15.0
"""Time for which `call.completed` waits at most for the first attempts of its call's earlier events: one that hangs,
and some more. It is counted from the start of this process at the earliest."""
CLAIM_MARGIN_S: Final = 30.0
"""Time from the timeout of an attempt until its claim expires."""
CLAIMS_LOCK: Final = "webhook claims"
"""The lock of the writes that claim attempts. Row locks decide between a claim and the result of an attempt."""
MAX_START_DELAY_S: Final = 20.0
"""From the claim to the start. A process that is later (it was stopped, the machine slept) does not send, because
another one may take the attempt over before the response arrives."""
NODE_START_DELAY_S: Final = 5.0
"""The same for one of several nodes: the claim of one that is down is free when its attempt must have ended, this long
and the timeout after the claim."""

T = TypeVar("T")
log = structlog.get_logger()


class NodeMembership(Protocol):
    """This server among the nodes: `storage.nodes.membership.Membership`."""

    @property
    def instance(self) -> str | None:
        """The id of this start of the node; None: the only server."""

    @property
    def is_valid(self) -> bool:
        """True while no other node takes this one for down."""

    @property
    def sees_others(self) -> bool:
        """False in an outage of the database, in which the others send no heartbeats either, and for a while after."""


class WebhookSender:
    """`run` sends due deliveries until it is cancelled. Attempts under way then stay claimed: they are made again,
    under the same number, at the next start of this server, or by another one after the claim has expired, or once
    this node is down and the attempts must have ended."""

    def __init__(
        self,
        database: Database,
        client: HttpEgressClient,
        secrets: Secrets,
        policy: DeliveryPolicy,
        membership: NodeMembership | None = None,
    ) -> None:
        """`membership`: of this server among several nodes."""
        self._database = database
        self._client = client
        self._secrets = secrets
        self._policy = policy
        self._membership = membership
        self._claimant = f"{os.getpid()}-{token_hex(8)}"
        if membership is not None and membership.instance is not None:
            self._claimant = attempt_claims.claimant_of(membership.instance)
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._concurrency = ReceiverConcurrency()
        self._claiming = asyncio.Lock()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """By the ids of the attempts."""
        self._closing = False
        self._begun_s = 0.0

    def wake(self) -> None:
        """Read the outbox now, because a delivery was put into it."""
        self._idle.clear()
        self._woken.set()

    async def wait_idle(self) -> None:
        """Wait until no delivery is due or under way; those that wait for a later attempt do not count."""
        await self._idle.wait()

    async def drain(self, wait_s: float) -> bool:
        """Send due deliveries for at most `wait_s`, then start no more and wait until the attempts under way have ended
        and their results are stored, while the database is away for at most `DRAIN_STORE_S`. Returns True if everything
        that was due has been sent."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self.wait_idle()
        self._closing = True  # no attempt is started that the end would cut off
        all_sent = self._idle.is_set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._policy.timeout_s + DRAIN_STORE_S):
                async with self._claiming:
                    pass
                if self._under_way:
                    await asyncio.wait(self._under_way.values())
        return all_sent

    @property
    def under_way(self) -> int:
        """Attempts whose results are not stored yet."""
        return len(self._under_way)

    async def run(self) -> None:
        """Send due deliveries at once and whenever `wake` is called."""
        self._begun_s = time.monotonic()
        duplicates = DuplicateFilter()
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                try:
                    wait_s = await self._send_due(group)
                    duplicates.reset()
                except StorageUnavailable as error:
                    write = log.debug if duplicates.is_duplicate(error) else log.error
                    write("webhook.outbox_unreadable", cause=error.cause, again_in_s=RETRY_S)
                    wait_s = RETRY_S
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._woken.wait()

    async def _send_due(self, group: asyncio.TaskGroup) -> float:
        """Claim and start due deliveries within the concurrency limits. Returns the seconds until the next one is due,
        unless `wake` or the end of an attempt comes first."""
        waiting, expired = await self._database.read(self._waiting_and_expired)
        now, left_by_others = utc_now(), not self._under_way.keys() >= set(expired)
        due = [each.destination for each in waiting if each.due_at <= now]
        if due and not self._is_valid:
            return HELD_S
        shares = {} if self._closing else self._concurrency.shares(due)
        if shares or (left_by_others and not self._closing):
            self._idle.clear()  # a retry becomes due without a `wake`
            async with self._claiming:
                claimed_at = time.monotonic()
                claimed, released = await self._database.write(partial(self._claim, shares), lock=CLAIMS_LOCK)
                for each in claimed:
                    self._concurrency.begin(each.attempt.destination)
                    self._under_way[each.attempt.id] = group.create_task(self._deliver(each, claimed_at))
            return 0.0 if claimed or released else HELD_S
        if not self._under_way and not self._woken.is_set() and (self._closing or not due):
            self._idle.set()
        waits = ((each.due_at - now).total_seconds() for each in waiting if each.due_at > now)
        return min((CHECK_EVERY_S, *waits))

    def _claim(self, shares: Mapping[str, int], conn: sa.Connection) -> tuple[list[DueAttempt], int]:
        """Claim attempts. The claim's `CLAIM_MARGIN_S` are for starting and for recording. Returns them, and the number
        of expired claims that were released."""
        now, released = utc_now(), 0
        if self._sees_others:
            dead_until = self._dead_until(now)
            released = attempt_claims.release_expired(conn, now, under_way=self._under_way, dead_until=dead_until)
        if released:
            log.warning("webhook.taken_over", attempts=released)
        until = now + timedelta(seconds=self._policy.timeout_s + CLAIM_MARGIN_S)
        keeps_order = time.monotonic() - self._begun_s < MAX_ORDER_WAIT_S
        overdue_at = None if keeps_order else now - timedelta(seconds=MAX_ORDER_WAIT_S)
        claimed = attempt_claims.claim(conn, self._claimant, shares, now=now, until=until, overdue_at=overdue_at)
        return claimed, released

    async def _deliver(self, due: DueAttempt, claimed_at: float) -> None:
        """Make one attempt. An unexpected exception fails this attempt alone, which is made again after its claim
        expires."""
        speed = None
        try:
            if self._is_claim_held(claimed_at):
                speed = await self._attempt(due)
            else:
                log.warning("webhook.claim_lapsed", call_id=due.delivery.call_id)
        except Exception as error:
            log.error("webhook.attempt_broken", call_id=due.delivery.call_id, error=repr(error), exc_info=error)
        finally:
            self._concurrency.end(due.attempt.destination, speed)
            del self._under_way[due.attempt.id]
            self.wake()

    def _is_claim_held(self, claimed_at: float) -> bool:
        """False if another process may take the attempt over before the response arrives."""
        delay_s = time.monotonic() - claimed_at
        if self._membership is None or self._membership.instance is None:
            return delay_s < MAX_START_DELAY_S
        return self._is_valid and delay_s < NODE_START_DELAY_S

    @property
    def _is_valid(self) -> bool:
        """False while another node may take this one for down: it does not claim what it could not send."""
        return self._membership is None or self._membership.is_valid

    def _waiting_and_expired(self, conn: sa.Connection) -> tuple[list[DueDestination], list[str]]:
        """Returns deliveries that wait, and the attempts whose claims have expired."""
        now = utc_now()
        expired = attempt_claims.expired_claims(conn, now, self._dead_until(now)) if self._sees_others else []
        return attempt_claims.due_destinations(conn), expired

    @property
    def _sees_others(self) -> bool:
        """False in an outage of the database, and for a while after it, in which the other nodes store the results of
        attempts that have ended meanwhile."""
        return self._membership is None or self._membership.sees_others

    def _dead_until(self, now: datetime) -> datetime | None:
        """Until when the claims of dead nodes expire whose attempts must have ended; None: there are no other nodes."""
        if self._membership is None or self._membership.instance is None:
            return None
        return now + timedelta(seconds=CLAIM_MARGIN_S - NODE_START_DELAY_S)

    async def _attempt(self, due: DueAttempt) -> ReceiverSpeed:
        """Send, and record the result. Returns the receiver's speed."""
        started_at = utc_now()
        result = await self._send(due)
        record = partial(
            deliveries.record_attempt,
            pending=due.attempt,
            succeeded=result.succeeded,
            response_status=result.status,
            response_body=result.body,
            error=result.error,
            duration_ms=result.duration_ms,
            started_at=started_at,
            next_attempt_at=self._next_attempt_at(due.attempt, started_at, result.duration_ms),
            claimant=self._claimant,
        )
        _observe(due, result, recorded=await self._store(record, due) is not None)
        return result.receiver_speed

    async def _store(self, record: Callable[[sa.Connection], T], due: DueAttempt) -> T:
        """Returns the result of `record`, which is tried again while the database fails, so that the delivery is not
        sent twice."""
        duplicates = DuplicateFilter()
        while True:
            try:
                return await self._database.write(record, lock=due.delivery.organization_id)
            except StorageUnavailable as error:
                fields = {"call_id": due.delivery.call_id, "cause": error.cause}
                write = log.debug if duplicates.is_duplicate(error) else log.error
                write("webhook.attempt_not_stored", again_in_s=STORE_RETRY_S, **fields)
                await asyncio.sleep(STORE_RETRY_S)

    def _next_attempt_at(self, attempt: DeliveryAttempt, started_at: datetime, took_ms: int) -> datetime | None:
        """Returns the time of the next attempt if this one failed now; None after the last one."""
        delays = self._policy.retry_delays_s
        if attempt.attempt > len(delays):
            return None
        return next_attempt_at(started_at, took_ms, utc_now(), delays[attempt.attempt - 1], random.random())

    async def _send(self, due: DueAttempt) -> AttemptResult:
        """Send the bytes once. Every failure is in the result."""
        delivery = due.delivery
        request = EventRequest(
            delivery_id=delivery.id,
            event=delivery.event,
            attempt=due.attempt.attempt,
            url=delivery.url,
            body=delivery.body,
            secret_encrypted=delivery.secret_encrypted,
            owner=delivery.organization_id,
        )
        return await send_event(request, self._client, self._secrets, self._policy, self._policy.timeout_s)


def _observe(due: DueAttempt, result: AttemptResult, *, recorded: bool) -> None:
    """Count and log an attempt. Not `recorded`: another process has taken it over, or its call was deleted."""
    metrics.WEBHOOK_ATTEMPTS.labels(outcome="succeeded" if result.succeeded else "failed").inc()
    event = "webhook.delivered" if result.succeeded else "webhook.failed"
    (log.info if result.succeeded else log.warning)(
        event,
        call_id=due.delivery.call_id,
        delivery=due.delivery.id,
        attempt=due.attempt.attempt,
        manual=due.attempt.manual,
        response_status=result.status,
        error=result.error,
        duration_ms=result.duration_ms,
        **({} if recorded else {"recorded": False}),
    )
