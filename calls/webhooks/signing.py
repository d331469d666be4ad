"""Webhook signatures: the headers of Standard Webhooks, and X-Service-Signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
from contextlib import suppress


def signature_headers(delivery_id: str, body: bytes, secret: str | None, timestamp: int) -> dict[str, str]:
    """Returns the headers that authenticate a delivery. `X-Service-Signature` is the lower-case hex HMAC-SHA256 of the
    body, keyed with the secret's text. The `webhook-` headers follow the Standard Webhooks specification: base64
    HMAC-SHA256 of `id.timestamp.body`, keyed with the secret's bytes, base64-decoded after `whsec_`. Without a secret
    nothing is signed. `timestamp` is Unix time, s."""
    headers = {"webhook-id": delivery_id, "webhook-timestamp": str(timestamp)}
    if secret:
        headers["X-Service-Signature"] = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        signed = f"{delivery_id}.{timestamp}.".encode() + body
        digest = hmac.digest(standard_webhooks_key(secret), signed, "sha256")
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def standard_webhooks_key(secret: str) -> bytes:
    """Returns the key of the Standard Webhooks signature. A text after `whsec_` that is not base64 is used itself."""
    if secret.startswith("whsec_"):
        encoded = secret.removeprefix("whsec_")
        with suppress(ValueError):
            return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    return secret.encode()
