"""Webhook signatures at a real receiver, against the published example and the `standardwebhooks` library."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from datetime import UTC, datetime

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from calls.webhooks.signing import signature_headers
from config.clock import utc_now
from config.secrets import Secrets
from storage.database.database import Database
from tests.calls.webhooks.outbox_harness import BODY, SECRET, Receiver, put, running_sender, stored


async def test_a_delivery_is_sent_at_once_signed_and_recorded(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    delivery = await put(database, f"{receiver.origin}/hook", secrets.encrypt(SECRET))
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    ((headers, body),) = receiver.got
    assert body == BODY
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Service-Event"] == "call.completed"
    assert headers["X-Service-Delivery"] == headers["webhook-id"] == delivery.id
    assert headers["X-Service-Attempt"] == "1"
    assert headers["X-Service-Signature"] == hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    expected = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    row, (attempt,) = await stored(database, delivery)
    assert (row.status, attempt.attempt, attempt.next_attempt_at) == ("succeeded", 1, None)
    assert (attempt.status, attempt.response_status, attempt.response_body) == ("succeeded", 200, "thanks")
    assert attempt.error is None
    assert attempt.duration_ms is not None
    assert delivery.created_at <= attempt.created_at <= utc_now()


async def test_without_a_secret_nothing_is_signed(database: Database, secrets: Secrets, receiver: Receiver) -> None:
    await put(database, f"{receiver.origin}/hook")
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    headers, _ = receiver.got[0]
    assert {"webhook-id", "webhook-timestamp"} <= set(headers)
    assert not {"X-Service-Signature", "webhook-signature"} & set(headers)


def test_the_standard_signature_agrees_with_the_published_example() -> None:
    """The example of the Standard Webhooks specification's reference libraries."""
    headers = signature_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        1614265330,
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


WHSEC = st.binary(min_size=1, max_size=64).map(lambda key: f"whsec_{base64.b64encode(key).decode()}")
PLAIN = st.text(min_size=1, max_size=64).filter(lambda secret: not secret.startswith("whsec_"))
"""Without `whsec_` a secret is the key as it is written. The library takes such a text for base64, and bytes as the
key."""


def library_for(secret: str) -> Webhook:
    return Webhook(secret if secret.startswith("whsec_") else secret.encode())


@given(secret=WHSEC | PLAIN, delivery_id=st.uuids().map(str), payload=st.dictionaries(st.text(), st.text()))
def test_the_library_verifies_what_is_signed(secret: str, delivery_id: str, payload: dict[str, str]) -> None:
    body = json.dumps(payload, ensure_ascii=False).encode(errors="replace")
    headers = signature_headers(delivery_id, body, secret, int(time.time()))
    assert library_for(secret).verify(body, headers) == json.loads(body)
    for changed in (body + b" ", b"[]"):
        with pytest.raises(WebhookVerificationError, match="No matching signature"):
            library_for(secret).verify(changed, headers)


@given(
    secret=WHSEC | PLAIN,
    delivery_id=st.uuids().map(str),
    body=st.text(),
    timestamp=st.integers(min_value=0, max_value=4_000_000_000),
)
def test_the_library_computes_the_same_signature(secret: str, delivery_id: str, body: str, timestamp: int) -> None:
    signed = library_for(secret).sign(delivery_id, datetime.fromtimestamp(timestamp, UTC), body)
    assert signature_headers(delivery_id, body.encode(), secret, timestamp)["webhook-signature"] == signed


async def test_the_library_verifies_a_delivery_at_its_receiver(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    await put(database, f"{receiver.origin}/hook", secrets.encrypt(secret))
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    ((headers, body),) = receiver.got
    assert Webhook(secret).verify(body, dict(headers)) == json.loads(BODY)
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_b3RoZXI=").verify(body, dict(headers))


def test_the_hex_signature_is_keyed_with_the_complete_secret_even_if_it_is_base64() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    expected = hmac.new(secret.encode(), b"x", hashlib.sha256).hexdigest()
    assert signature_headers("d", b"x", secret, 1)["X-Service-Signature"] == expected


@pytest.mark.parametrize("secret", ["whsec_not base64!", "whsec_schlüssel"])
def test_a_secret_that_only_looks_like_base64_is_used_as_it_is_written(secret: str) -> None:
    digest = hmac.digest(secret.encode(), b"d.1.x", "sha256")
    headers = signature_headers("d", b"x", secret, 1)
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


async def test_a_secret_of_another_key_file_fails_its_delivery_alone(
    database: Database, secrets: Secrets, receiver: Receiver
) -> None:
    lost = await put(database, f"{receiver.origin}/hook", Secrets([Fernet.generate_key()]).encrypt(SECRET))
    good = await put(database, f"{receiver.origin}/hook", secrets.encrypt(SECRET))
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    assert (await stored(database, lost))[0].status == "failed"
    assert (await stored(database, good))[0].status == "succeeded"
    assert len(receiver.got) == 1
