"""The signature by which a node knows a request that another node passes on: HMAC-SHA256 with the secret that all nodes
share. It covers the request, who asks, and the instance that it is meant for, and holds once, for some seconds."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from multidict import istr

SIGNATURE: Final = istr("X-Trunkline-Signature")
"""`time nonce digest`: ms since 1970 by the database's clock, 32 hex digits, 64 hex digits."""
FORWARDED_CLIENT: Final = istr("X-Trunkline-Forwarded-Client")
"""The client that asks, in base64 (`api.nodes.forwarded_client`)."""
BODY_SHA256: Final = istr("X-Trunkline-Body-SHA256")
MAX_AGE_MS: Final = 4_000
"""The most that the time of a request differs from this node's. A node that hung longer refuses what was sent to it
meanwhile, and was given up."""
MIN_SECRET: Final = 32
"""Characters of a secret."""


class BadSignature(Exception):
    """The request is not of a node; the text says why, without anything that the request has."""


@dataclass(frozen=True)
class SignedRequest:
    """What a signature covers. `target`: method and path with query; `instance`: of the node that it is sent to."""

    instance: str
    method: str
    target: str
    body_sha256: str
    forwarded: str

    def digest(self, secret: bytes, time_ms: str, nonce: str) -> str:
        """Returns the HMAC in hex."""
        parts = ("1", self.instance, self.method, self.target, self.body_sha256, self.forwarded, time_ms, nonce)
        return hmac.new(secret, "\n".join(parts).encode(), hashlib.sha256).hexdigest()


def sign(secret: bytes, request: SignedRequest, now_ms: int) -> dict[str, str]:
    """Returns the headers of a request to another node."""
    time_ms, nonce = str(now_ms), secrets.token_hex(16)
    return {
        SIGNATURE: f"{time_ms} {nonce} {request.digest(secret, time_ms, nonce)}",
        FORWARDED_CLIENT: request.forwarded,
        BODY_SHA256: request.body_sha256,
    }


class SignatureCheck:
    """Checks the requests to this instance."""

    def __init__(self, secret: bytes, instance: str) -> None:
        self._secret = secret
        self._instance = instance
        self._nonces: dict[str, int] = {}
        """Nonces of valid requests, each with the time after which its request is too old, ms."""

    def check(self, method: str, target: str, headers: Mapping[str, str], now_ms: int) -> SignedRequest:
        """Returns what was signed; the caller compares the hash of the body. Raises `BadSignature`."""
        parts = headers.get(SIGNATURE, "").split(" ")
        if len(parts) != 3 or not (parts[0].isascii() and parts[0].isdecimal() and len(parts[0]) < 20):
            raise BadSignature("malformed")
        time_ms, nonce, digest = parts
        request = SignedRequest(
            self._instance, method, target, headers.get(BODY_SHA256, ""), headers.get(FORWARDED_CLIENT, "")
        )
        if not hmac.compare_digest(request.digest(self._secret, time_ms, nonce).encode(), digest.encode()):
            raise BadSignature("wrong signature")
        if abs(now_ms - int(time_ms)) > MAX_AGE_MS:
            raise BadSignature("wrong time")
        self._nonces = {each: until for each, until in self._nonces.items() if until >= now_ms}
        if nonce in self._nonces:
            raise BadSignature("repeated")
        self._nonces[nonce] = int(time_ms) + MAX_AGE_MS
        return request


def sha256_of(body: bytes) -> str:
    """Returns the hash of a body in hex."""
    return hashlib.sha256(body).hexdigest()
