"""DNS records that SIP uses: NAPTR and SRV, and the answer to a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")


class LookupFailed(Exception):
    """No name server has answered; earlier records of the name may still be valid."""


@dataclass(frozen=True)
class DnsAnswer(Generic[R]):
    """The records of a name, perhaps none, and how long they are valid."""

    records: tuple[R, ...]
    ttl_s: float


@dataclass(frozen=True)
class NaptrRecord:
    """A NAPTR record (RFC 3403, 4.1), without the regexp, which SIP does not use (RFC 3263, 4.1)."""

    order: int
    preference: int
    flags: str
    service: str
    replacement: str


@dataclass(frozen=True)
class SrvRecord:
    """An SRV record (RFC 2782). `target` is "" when the service is not offered."""

    priority: int
    weight: int
    port: int
    target: str
