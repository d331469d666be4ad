"""Digest authentication of inbound requests (RFC 3261 22, RFC 7616, RFC 8760), with nonces that authenticate themselves
and need no table.

The input may be hostile: memory is bounded, the processing time is linear, and a wrong user and a wrong password are
treated alike.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from sipcore.messages.headers import HeaderLines

REALM: Final = "trunkline"
NONCE_LIFETIME_S: Final = 60.0
"""Lifetime of a nonce."""
MAX_FAILURES: Final = 5
"""Failures of one source with the numbers of one organization in `FAILURE_WINDOW_S`; after that many no digest is
computed."""
MAX_SOURCE_FAILURES: Final = 50
"""The same with the numbers of all organizations, several of which may have callers behind one address."""
FAILURE_WINDOW_S: Final = 60.0
MAX_SOURCES: Final = 4096
"""Sources whose failures are stored; the one that failed least recently is evicted."""
MAX_NONCES: Final = 65536
"""Nonces whose counts are stored, which requires the right password; with more in a minute, a nonce is stale."""

Algorithm = Literal["SHA-256", "MD5"]
DigestOutcome = Literal["granted", "asked", "stale", "wrong", "blocked"]
"""`granted`; `asked`: no credentials for our realm; `stale`: right ones on a nonce that has expired; `wrong` ones;
`blocked`: too many wrong ones before."""

NONCE_MARK: Final = secrets.token_urlsafe(9)
"""The prefix of this process's nonces: a challenge with it is ours, and we never answer it. Else a peer could pass our
challenge back to us and authenticate with our response."""

_HASHES: Final[Mapping[Algorithm, Callable[[bytes], Any]]] = {
    "SHA-256": hashlib.sha256,
    "MD5": partial(hashlib.md5, usedforsecurity=False),
}
_PARAMETER: Final = re.compile(r'[\s,]*+([A-Za-z-]++)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]++))\s*+(?=,|\Z)')
_ESCAPED: Final = re.compile(r"\\(.)")
_COUNT: Final = re.compile(r"[0-9A-Fa-f]{8}")
_TIME_BYTES: Final = 8
_RANDOM_BYTES: Final = 12
_MAC_BYTES: Final = 16


@dataclass(frozen=True)
class DigestTarget:
    """The method and URI of a request, which its digest must contain. `matches_uri` returns whether a digest's `uri`
    names the same resource as the request URI (RFC 7616 3.4.6): else the response to another request could be
    replayed."""

    method: str
    matches_uri: Callable[[str], bool]


class NonceStore:
    """Nonces that are valid for one source and a minute, each with ascending nonce counts. Times are seconds of
    any monotonic clock."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._used: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def issue(self, source: str, now_s: float) -> str:
        """A new nonce."""
        payload = int(now_s * 1000).to_bytes(_TIME_BYTES, "big") + secrets.token_bytes(_RANDOM_BYTES)
        return _format_nonce(payload + self._mac(payload, source))

    def consume(self, nonce: str, count: int, source: str, now_s: float) -> bool:
        """Consume a nonce count; returns False unless the nonce is ours, for this source, not expired, and was not used
        with this count or a higher one. Only after the right password, because stored counts take memory."""
        if not self._is_valid(nonce, source, now_s):
            return False
        while self._used and next(iter(self._used.values()))[1] < now_s - NONCE_LIFETIME_S:
            self._used.popitem(last=False)
        before, first_s = self._used.get(nonce, (0, now_s))
        if count <= before or (before == 0 and len(self._used) >= MAX_NONCES):
            return False
        self._used[nonce] = count, first_s
        return True

    def _is_valid(self, nonce: str, source: str, now_s: float) -> bool:
        if not nonce.startswith(NONCE_MARK):
            return False
        try:
            decoded = base64.b64decode(nonce[len(NONCE_MARK) :].encode("ascii", "replace"), b"-_", validate=True)
        except binascii.Error:
            return False
        if nonce != _format_nonce(decoded):  # else one nonce could be encoded, and used, in several ways
            return False
        payload, mac = decoded[:-_MAC_BYTES], decoded[-_MAC_BYTES:]
        if len(payload) != _TIME_BYTES + _RANDOM_BYTES or not hmac.compare_digest(mac, self._mac(payload, source)):
            return False
        return now_s - int.from_bytes(payload[:_TIME_BYTES], "big") / 1000 <= NONCE_LIFETIME_S

    def _mac(self, payload: bytes, source: str) -> bytes:
        return hmac.digest(self._key, payload + source.encode("utf-8", "replace"), "sha256")[:_MAC_BYTES]


def _format_nonce(nonce: bytes) -> str:
    return NONCE_MARK + base64.urlsafe_b64encode(nonce).decode()


class AuthFailureLimiter:
    """The latest wrong responses by source; `max_failures` of them in `FAILURE_WINDOW_S` block the source."""

    def __init__(self, max_failures: int) -> None:
        self._max_failures: Final = max_failures
        self._times: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def record(self, source: tuple[str, ...], now_s: float) -> None:
        """Count a wrong response."""
        self._times.setdefault(source, deque(maxlen=self._max_failures)).append(now_s)
        self._times.move_to_end(source)
        if len(self._times) > MAX_SOURCES:
            self._times.popitem(last=False)

    def is_blocked(self, source: tuple[str, ...], now_s: float) -> bool:
        """True if the source has reached the limit."""
        times = self._times.get(source)
        return times is not None and len(times) == self._max_failures and times[0] > now_s - FAILURE_WINDOW_S


class DigestVerifier:
    """Challenges requests and verifies their digests. `algorithms`: those that are offered and accepted, preferred
    first."""

    def __init__(self, algorithms: Sequence[Algorithm]) -> None:
        self._algorithms: Final = tuple(algorithms)
        self._nonces = NonceStore()
        self._failures = AuthFailureLimiter(MAX_FAILURES)
        self._failures_of_source = AuthFailureLimiter(MAX_SOURCE_FAILURES)

    def challenge(self, source: str, now_s: float, *, stale: bool = False) -> HeaderLines:
        """The WWW-Authenticate headers of a 401, one for each algorithm (RFC 8760 2.4)."""
        nonce = self._nonces.issue(source, now_s)
        tail = ", stale=true" if stale else ""
        return [
            (
                "WWW-Authenticate",
                f'Digest realm="{REALM}", nonce="{nonce}", qop="auth", algorithm={algorithm}{tail}',
            )
            for algorithm in self._algorithms
        ]

    def verify(
        self, authorization: str, target: DigestTarget, credentials: Credentials, source: str, owner: str, now_s: float
    ) -> DigestOutcome:
        """Verify an Authorization header ("" without one) that came from `source` in a request for `target`. `owner`
        owns the credentials: several may share a source, and failures with those of one do not block another."""
        if self._failures.is_blocked((source, owner), now_s) or self._failures_of_source.is_blocked((source,), now_s):
            return "blocked"
        parameters = digest_parameters(authorization)
        if parameters is None or parameters.get("realm") != REALM:
            return "asked"
        if not self._is_valid_response(parameters, target, credentials):
            self._failures.record((source, owner), now_s)
            self._failures_of_source.record((source,), now_s)
            return "wrong"
        fresh = self._nonces.consume(parameters["nonce"], int(parameters["nc"], 16), source, now_s)
        return "granted" if fresh else "stale"

    def _is_valid_response(self, parameters: Mapping[str, str], target: DigestTarget, credentials: Credentials) -> bool:
        """True if the response is that of the credentials to its nonce (RFC 7616 3.4). The user is compared as late,
        and in constant time, as the rest: a wrong user takes as long as a wrong password."""
        algorithm = next(
            (each for each in self._algorithms if each == parameters.get("algorithm", "MD5").upper()), None
        )
        if algorithm is None or parameters.get("qop") != "auth" or _COUNT.fullmatch(parameters.get("nc", "")) is None:
            return False
        if not parameters.get("nonce") or not parameters.get("cnonce"):
            return False
        expected = digest_response(algorithm, target.method, credentials, parameters)
        user_matches = hmac.compare_digest(_bytes(credentials.user), _bytes(parameters.get("username", "")))
        response_matches = hmac.compare_digest(_bytes(expected), _bytes(parameters.get("response", "").lower()))
        return user_matches & response_matches and target.matches_uri(parameters.get("uri", ""))


def digest_response(algorithm: Algorithm, method: str, credentials: Credentials, parameters: Mapping[str, str]) -> str:
    """The right `response` for the other parameters, in lower-case hex (RFC 7616 3.4.1, qop=auth)."""

    def hashed(*parts: str) -> str:
        digest: str = _HASHES[algorithm](_bytes(":".join(parts))).hexdigest()
        return digest

    a1 = hashed(credentials.user, parameters["realm"], credentials.password)
    a2 = hashed(method, parameters.get("uri", ""))
    return hashed(a1, parameters["nonce"], parameters["nc"], parameters["cnonce"], parameters["qop"], a2)


def digest_parameters(authorization: str) -> Mapping[str, str] | None:
    """The parameters of digest credentials by name in lower case, unquoted; None for another scheme, for malformed
    ones, and for a repeated parameter."""
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() != "digest":
        return None
    parameters: dict[str, str] = {}
    at, rest = 0, rest.rstrip(" \t,")
    while at < len(rest):
        match = _PARAMETER.match(rest, at)
        if match is None or match[1].lower() in parameters:
            return None
        quoted, plain = match[2], match[3]
        parameters[match[1].lower()] = plain if quoted is None else _ESCAPED.sub(r"\1", quoted)
        at = match.end()
    return parameters


def _bytes(text: str) -> bytes:
    """The bytes of the message, also where they were invalid UTF-8."""
    return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Credentials:
    """User and password for the challenges of a peer (RFC 3261 22), in any realm."""

    user: str
    password: str = field(repr=False)
