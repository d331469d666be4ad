"""Who calls in tells a user and a password: HTTP digest as SIP has it (RFC 3261 22, RFC 7616, RFC 8760), with nonces of
our own, which prove themselves and therefore need no table.

What callers send may be hostile: memory is bounded, the time taken is linear, and nothing tells a wrong user from a
wrong password.
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
"""How long a nonce is good for."""
MAX_FAILURES: Final = 5
"""Of one source with the numbers of one organization in `FAILURES_S`; then nothing of it is computed any more."""
MAX_SOURCE_FAILURES: Final = 50
"""The same with all numbers: so many organizations would have to have callers there that fail."""
FAILURE_WINDOW_S: Final = 60.0
MAX_SOURCES: Final = 4096
"""Whose failures are remembered, of each kind; the one that failed longest ago is forgotten for another."""
MAX_NONCES: Final = 65536
"""Whose counts are remembered, which takes the right password; more in a minute are told to ask again."""

Algorithm = Literal["SHA-256", "MD5"]
DigestOutcome = Literal["granted", "asked", "stale", "wrong", "blocked"]
"""Granted; no credentials yet; right ones on a nonce that holds no more; wrong ones; too many of those before."""

NONCE_MARK: Final = secrets.token_urlsafe(9)
"""What nonces of this process begin with: a challenge that has one is ours, and we never answer it. A peer that could
have us do so would come in by what we said."""

_HASHES: Final[Mapping[Algorithm, Callable[[bytes], Any]]] = {
    "SHA-256": hashlib.sha256,
    "MD5": partial(hashlib.md5, usedforsecurity=False),
}
_PARAMETER: Final = re.compile(r'[\s,]*+([A-Za-z-]++)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]++))\s*+(?=,|\Z)')
_ESCAPED: Final = re.compile(r"\\(.)")
_COUNT: Final = re.compile(r"[0-9A-Fa-f]{8}")
_PLACE: Final = 8  # bytes of the time in a nonce
_CHANCE: Final = 12
_PROOF: Final = 16


@dataclass(frozen=True)
class DigestTarget:
    """What a request wants. `names` tells whether a digest's `uri` names the same as the request URI (RFC 7616 3.4.6):
    else an answer that somebody gave to something else could be used."""

    method: str
    matches_uri: Callable[[str], bool]


class NonceStore:
    """Nonces that hold for one source and a minute, each with counts that only go up. Times are seconds of any clock
    that only goes forward."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._used: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def issue(self, source: str, now_s: float) -> str:
        """A new one."""
        facts = int(now_s * 1000).to_bytes(_PLACE, "big") + secrets.token_bytes(_CHANCE)
        return _written(facts + self._proof(facts, source))

    def use(self, nonce: str, count: int, source: str, now_s: float) -> bool:
        """Whether it is ours, for this source, young enough, and was not used with this count or a higher one. Only for
        who has shown the right password: what is remembered takes memory."""
        if not self._holds(nonce, source, now_s):
            return False
        while self._used and next(iter(self._used.values()))[1] < now_s - NONCE_LIFETIME_S:
            self._used.popitem(last=False)
        before, first_s = self._used.get(nonce, (0, now_s))
        if count <= before or (before == 0 and len(self._used) >= MAX_NONCES):
            return False
        self._used[nonce] = count, first_s
        return True

    def _holds(self, nonce: str, source: str, now_s: float) -> bool:
        if not nonce.startswith(NONCE_MARK):
            return False
        try:
            told = base64.b64decode(nonce[len(NONCE_MARK) :].encode("ascii", "replace"), b"-_", validate=True)
        except binascii.Error:
            return False
        if nonce != _written(told):  # else one nonce could be written, and used, in several ways
            return False
        facts, proof = told[:-_PROOF], told[-_PROOF:]
        if len(facts) != _PLACE + _CHANCE or not hmac.compare_digest(proof, self._proof(facts, source)):
            return False
        return now_s - int.from_bytes(facts[:_PLACE], "big") / 1000 <= NONCE_LIFETIME_S

    def _proof(self, facts: bytes, source: str) -> bytes:
        return hmac.digest(self._key, facts + source.encode("utf-8", "replace"), "sha256")[:_PROOF]


def _written(nonce: bytes) -> str:
    return NONCE_MARK + base64.urlsafe_b64encode(nonce).decode()


class AuthFailureLimiter:
    """The latest wrong answers of each who gives some; `most` in `FAILURES_S` are too many."""

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._times: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def record(self, who: tuple[str, ...], now_s: float) -> None:
        """One more."""
        self._times.setdefault(who, deque(maxlen=self._most)).append(now_s)
        self._times.move_to_end(who)
        if len(self._times) > MAX_SOURCES:
            self._times.popitem(last=False)

    def too_many(self, who: tuple[str, ...], now_s: float) -> bool:
        """Whether it has failed as often as it may."""
        times = self._times.get(who)
        return times is not None and len(times) == self._most and times[0] > now_s - FAILURE_WINDOW_S


class DigestVerifier:
    """Judges what callers say of themselves. `algorithms`: which are offered and taken, the preferred one first."""

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
        self, authorization: str, wanted: DigestTarget, credentials: Credentials, source: str, owner: str, now_s: float
    ) -> DigestOutcome:
        """What an Authorization header is worth that came from `source` with a request that wants this; "" for none.
        `owner` is whose credentials they are: several may share a source, and who fails with those of one is still
        heard with those of another."""
        if self._failures.too_many((source, owner), now_s) or self._failures_of_source.too_many((source,), now_s):
            return "blocked"
        given = digest_parameters(authorization)
        if given is None or given.get("realm") != REALM:
            return "asked"
        if not self._is_response_right(given, wanted, credentials):
            self._failures.record((source, owner), now_s)
            self._failures_of_source.record((source,), now_s)
            return "wrong"
        fresh = self._nonces.use(given["nonce"], int(given["nc"], 16), source, now_s)
        return "granted" if fresh else "stale"

    def _is_response_right(self, given: Mapping[str, str], wanted: DigestTarget, credentials: Credentials) -> bool:
        """Whether the response is that of the credentials to the nonce that it names (RFC 7616 3.4). The user is
        compared as late and as carefully as the rest: a wrong one takes as long as a wrong password."""
        algorithm = next((each for each in self._algorithms if each == given.get("algorithm", "MD5").upper()), None)
        if algorithm is None or given.get("qop") != "auth" or _COUNT.fullmatch(given.get("nc", "")) is None:
            return False
        if not given.get("nonce") or not given.get("cnonce"):
            return False
        expected = digest_response(algorithm, wanted.method, credentials, given)
        right_user = hmac.compare_digest(_bytes(credentials.user), _bytes(given.get("username", "")))
        right_response = hmac.compare_digest(_bytes(expected), _bytes(given.get("response", "").lower()))
        return right_user & right_response and wanted.matches_uri(given.get("uri", ""))


def digest_response(algorithm: Algorithm, method: str, credentials: Credentials, given: Mapping[str, str]) -> str:
    """The right `response` to what the other parameters say, in lower-case hex (RFC 7616 3.4.1, qop=auth)."""

    def hashed(*parts: str) -> str:
        told: str = _HASHES[algorithm](_bytes(":".join(parts))).hexdigest()
        return told

    secret = hashed(credentials.user, given["realm"], credentials.password)
    wish = hashed(method, given.get("uri", ""))
    return hashed(secret, given["nonce"], given["nc"], given["cnonce"], given["qop"], wish)


def digest_parameters(authorization: str) -> Mapping[str, str] | None:
    """The parameters of digest credentials by their names in lower case, unquoted; None for another scheme, for what is
    none, and when one comes twice."""
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() != "digest":
        return None
    found: dict[str, str] = {}
    at, rest = 0, rest.rstrip(" \t,")
    while at < len(rest):
        match = _PARAMETER.match(rest, at)
        if match is None or match[1].lower() in found:
            return None
        quoted, plain = match[2], match[3]
        found[match[1].lower()] = plain if quoted is None else _ESCAPED.sub(r"\1", quoted)
        at = match.end()
    return found


def _bytes(text: str) -> bytes:
    """As it stood in the message, also where that was no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Credentials:
    """Who we are for a peer that asks (RFC 3261 22), whatever its realm is called."""

    user: str
    password: str = field(repr=False)
