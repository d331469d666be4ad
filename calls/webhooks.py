"""Sends what lies in the outbox: signed, each attempt with the same bytes, success is status 200 in time."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import sqlalchemy as sa
import structlog

from calls import metrics
from calls.egress import EgressClient
from config.clock import utc_now
from config.errors import EgressError, TrunklineError
from config.secrets import Secrets
from storage import webhook_deliveries
from storage.database import Database, StorageTrouble
from storage.webhook_deliveries import Attempt, Due

MOST_AT_ONCE: Final = 200
"""Attempts under way at the same time."""
BODY_BYTES: Final = 4096
"""How much of a receiver's answer is read and kept."""
TROUBLE_PAUSE_S: Final = 5.0
"""Wait after the database was in trouble."""

log = structlog.get_logger()


@dataclass(frozen=True)
class DeliveryPolicy:
    """`allow_http` for test receivers. `timeout_s` is what a receiver may take. `retry_delays_s` are the waits between
    a failed attempt and the next one."""

    allow_http: bool = False
    timeout_s: float = 10.0
    retry_delays_s: Sequence[float] = (60.0, 300.0, 900.0, 3600.0)


@dataclass(frozen=True)
class Sent:
    """What an attempt came to. `error` says why there was no answer."""

    status: int | None
    body: str | None
    error: str | None
    duration_ms: int

    @property
    def succeeded(self) -> bool:
        """Exactly status 200 counts."""
        return self.status == 200


def signature_headers(delivery_id: str, body: bytes, secret: str | None, timestamp: int) -> dict[str, str]:
    """The headers that prove a delivery. `X-Service-Signature` is the lower-case hex HMAC-SHA256 of the body, keyed
    with the secret as it is. The `webhook-` trio follows the Standard Webhooks specification: base64 HMAC-SHA256 of
    `id.timestamp.body`, keyed with the secret's bytes, base64-decoded after `whsec_`. Without a secret nothing is
    signed. `timestamp` is Unix time, s."""
    headers = {"webhook-id": delivery_id, "webhook-timestamp": str(timestamp)}
    if secret:
        headers["X-Service-Signature"] = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        signed = f"{delivery_id}.{timestamp}.".encode() + body
        digest = hmac.digest(standard_key(secret), signed, "sha256")
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def standard_key(secret: str) -> bytes:
    """The key of the Standard Webhooks signature. What follows `whsec_` and is no base64 counts as it is written."""
    if secret.startswith("whsec_"):
        encoded = secret.removeprefix("whsec_")
        with suppress(binascii.Error):
            return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    return secret.encode()


class Deliverer:
    """`run` sends what is due until it is cancelled; what was under way then is sent again at the next start."""

    def __init__(self, database: Database, client: EgressClient, secrets: Secrets, policy: DeliveryPolicy) -> None:
        self._database = database
        self._client = client
        self._secrets = secrets
        self._policy = policy
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._under_way: set[str] = set()

    def wake(self) -> None:
        """Something was put into the outbox."""
        self._idle.clear()
        self._news.set()

    async def idle(self) -> None:
        """Wait until nothing is due and nothing is under way; what waits for a later attempt does not count."""
        await self._idle.wait()

    async def run(self) -> None:
        """Send whatever is due, at once and whenever `wake` is called."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                try:
                    wait_s = await self._send_due(group)
                except StorageTrouble as trouble:
                    log.error("webhook.outbox_unreadable", cause=trouble.cause, again_in_s=TROUBLE_PAUSE_S)
                    wait_s = TROUBLE_PAUSE_S
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._news.wait()

    async def _send_due(self, group: asyncio.TaskGroup) -> float | None:
        """Start what is due. Returns how many s there is nothing to do; None: until `wake` or the end of an attempt."""
        seen = set(self._under_way)  # one of them may end while we read: then what we read of it is old
        due, next_at = await self._database.read(partial(_look, utc_now(), MOST_AT_ONCE + len(seen)))
        for each in due:
            if each.attempt.id not in seen and len(self._under_way) < MOST_AT_ONCE:
                self._under_way.add(each.attempt.id)
                group.create_task(self._deliver(each))
        if self._under_way:
            return None
        if not self._news.is_set():
            self._idle.set()
        return None if next_at is None else max(0.0, (next_at - utc_now()).total_seconds())

    async def _deliver(self, due: Due) -> None:
        """One attempt; a fault of ours in it stays with this attempt."""
        try:
            await self._make(due)
        except Exception as error:
            log.error("webhook.attempt_broken", call_id=due.delivery.call_id, error=repr(error), exc_info=error)
            await asyncio.sleep(TROUBLE_PAUSE_S)
        finally:
            self._under_way.discard(due.attempt.id)
            self.wake()

    async def _make(self, due: Due) -> None:
        """Send, and record what came of it."""
        started_at = utc_now()
        sent = await self._send(due)
        try:
            await self._database.write(
                partial(
                    webhook_deliveries.record_attempt,
                    pending=due.attempt,
                    succeeded=sent.succeeded,
                    response_status=sent.status,
                    response_body=sent.body,
                    error=sent.error,
                    duration_ms=sent.duration_ms,
                    started_at=started_at,
                    next_attempt_at=self._again_at(due.attempt),
                )
            )
        except StorageTrouble as trouble:
            log.error("webhook.attempt_not_stored", call_id=due.delivery.call_id, cause=trouble.cause)
            await asyncio.sleep(TROUBLE_PAUSE_S)
            return
        _note(due, sent)

    def _again_at(self, attempt: Attempt) -> datetime | None:
        """When the schedule tries again after this one failed; None: not any more."""
        delays = self._policy.retry_delays_s
        if attempt.attempt > len(delays):
            return None
        return utc_now() + timedelta(seconds=delays[attempt.attempt - 1])

    async def _send(self, due: Due) -> Sent:
        """Send the bytes once. Whatever goes wrong is told in the result."""
        started = time.monotonic()

        def took() -> int:
            return round((time.monotonic() - started) * 1000)

        try:
            headers = self._headers(due)
            self._check_scheme(due.delivery.url)
            answer = await self._client.request(
                "POST",
                due.delivery.url,
                headers=headers,
                body=due.delivery.body,
                timeout_s=self._policy.timeout_s,
                max_bytes=BODY_BYTES,
                asker=due.delivery.organization_id,
            )
        except TrunklineError as error:
            return Sent(None, None, error.message, took())
        return Sent(answer.status, text_of(answer.body), None, took())

    def _headers(self, due: Due) -> dict[str, str]:
        delivery = due.delivery
        token = delivery.secret_encrypted
        secret = None if token is None else self._secrets.decrypt(token)
        return {
            "Content-Type": "application/json",
            "X-Service-Event": delivery.event,
            "X-Service-Delivery": delivery.id,
            "X-Service-Attempt": str(due.attempt.attempt),
            **signature_headers(delivery.id, delivery.body, secret, int(time.time())),
        }

    def _check_scheme(self, url: str) -> None:
        scheme = url.partition(":")[0].lower()
        if scheme != "https" and not (scheme == "http" and self._policy.allow_http):
            raise EgressError("refused", "webhooks are sent to https addresses only")


def text_of(body: bytes) -> str:
    """An answer's body as it is kept: UTF-8 that takes no more bytes than `BODY_BYTES`, whatever had to be replaced."""
    return body.decode("utf-8", "replace").encode()[:BODY_BYTES].decode("utf-8", "ignore")


def _look(now: datetime, limit: int, conn: sa.Connection) -> tuple[list[Due], datetime | None]:
    """What is due, and when the next attempt is."""
    return webhook_deliveries.due(conn, now, limit=limit), webhook_deliveries.next_due_at(conn)


def _note(due: Due, sent: Sent) -> None:
    metrics.WEBHOOK_ATTEMPTS.labels(outcome="succeeded" if sent.succeeded else "failed").inc()
    event = "webhook.delivered" if sent.succeeded else "webhook.failed"
    (log.info if sent.succeeded else log.warning)(
        event,
        call_id=due.delivery.call_id,
        delivery=due.delivery.id,
        attempt=due.attempt.attempt,
        manual=due.attempt.manual,
        response_status=sent.status,
        error=sent.error,
        duration_ms=sent.duration_ms,
    )
