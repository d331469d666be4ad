"""What names have in the DNS, as far as SIP needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")


class LookupFailed(Exception):
    """Nobody could say what a name has; what was known before may well be so still."""


@dataclass(frozen=True)
class DnsAnswer(Generic[R]):
    """The records of a name; none when it has none. `ttl_s`: how long that holds."""

    records: tuple[R, ...]
    ttl_s: float


@dataclass(frozen=True)
class NaptrRecord:
    """RFC 3403, 4.1, of what SIP uses (RFC 3263, 4.1)."""

    order: int
    preference: int
    flags: str
    service: str
    replacement: str


@dataclass(frozen=True)
class SrvRecord:
    """RFC 2782. `target` is "" when the service is decidedly not there."""

    priority: int
    weight: int
    port: int
    target: str
