"""One signed request with an event, and its result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from calls.http_egress.client import HttpEgressClient
from calls.webhooks.receiver_concurrency import QUICK_S, ReceiverSpeed
from calls.webhooks.signing import signature_headers
from config.errors import HttpEgressError, TrunklineError
from config.secrets import Secrets

MAX_BODY_BYTES: Final = 4096
"""Bytes of a receiver's response that are read and stored."""


@dataclass(frozen=True)
class DeliveryPolicy:
    """`allow_http` is for test receivers. `timeout_s` is the time for a response. `retry_delays_s` are the waits
    between a failed attempt and the next one."""

    allow_http: bool = False
    timeout_s: float = 10.0
    retry_delays_s: Sequence[float] = (60.0, 300.0, 900.0, 3600.0)


@dataclass(frozen=True)
class EventRequest:
    """One attempt to send an event. `delivery_id` is the event's; `owner` is its organization."""

    delivery_id: str
    event: str
    attempt: int
    url: str
    body: bytes
    secret_encrypted: str | None
    owner: str


@dataclass(frozen=True)
class AttemptResult:
    """The result of an attempt. `error`: why there was no response, else None."""

    status: int | None
    body: str | None
    error: str | None
    duration_ms: int

    @property
    def succeeded(self) -> bool:
        """True if the status is exactly 200."""
        return self.status == 200

    @property
    def receiver_speed(self) -> ReceiverSpeed:
        """The speed of the receiver in this attempt."""
        if self.status is None:
            return ReceiverSpeed.SILENT
        return ReceiverSpeed.QUICK if self.duration_ms <= 1000 * QUICK_S else ReceiverSpeed.SLOW


async def send_event(
    request: EventRequest, client: HttpEgressClient, secrets: Secrets, policy: DeliveryPolicy, timeout_s: float
) -> AttemptResult:
    """Send the bytes once. Every failure is in the result."""
    started = time.monotonic()

    def took_ms() -> int:
        return round((time.monotonic() - started) * 1000)

    try:
        headers = _headers(request, secrets)
        _check_scheme(request.url, policy)
        response = await client.request(
            "POST",
            request.url,
            headers=headers,
            body=request.body,
            timeout_s=timeout_s,
            max_bytes=MAX_BODY_BYTES,
            owner=request.owner,
        )
    except TrunklineError as error:
        return AttemptResult(None, None, error.message, took_ms())
    return AttemptResult(response.status, stored_body(response.body), None, took_ms())


def _headers(request: EventRequest, secrets: Secrets) -> dict[str, str]:
    encrypted = request.secret_encrypted
    secret = None if encrypted is None else secrets.decrypt(encrypted)
    return {
        "Content-Type": "application/json",
        "X-Service-Event": request.event,
        "X-Service-Delivery": request.delivery_id,
        "X-Service-Attempt": str(request.attempt),
        **signature_headers(request.delivery_id, request.body, secret, int(time.time())),
    }


def _check_scheme(url: str, policy: DeliveryPolicy) -> None:
    scheme = url.partition(":")[0].lower()
    if scheme != "https" and not (scheme == "http" and policy.allow_http):
        raise HttpEgressError("refused", "webhooks are sent to https addresses only")


def stored_body(body: bytes) -> str:
    """Returns a response's body as it is stored: UTF-8 of at most `MAX_BODY_BYTES`, after replacing invalid bytes."""
    return body.decode("utf-8", "replace").encode()[:MAX_BODY_BYTES].decode("utf-8", "ignore")
