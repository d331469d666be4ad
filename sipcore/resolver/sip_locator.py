"""Where a host takes SIP: NAPTR, then SRV, then addresses (RFC 3263, 4)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol, TypeVar

from sipcore.resolver.dns_records import DnsAnswer, LookupFailed, NaptrRecord, SrvRecord
from sipcore.resolver.target import DEFAULT_PORT, SipHostPort, SipTarget, Transport

R = TypeVar("R")

_SERVICES: Final[dict[str, Transport]] = {"SIP+D2U": "udp", "SIP+D2T": "tcp", "SIPS+D2T": "tls"}
_SRV_PREFIX: Final[dict[Transport, str]] = {"udp": "_sip._udp", "tcp": "_sip._tcp", "tls": "_sips._tcp"}
_MOST: Final = 16
"""Targets of one place: as many as PJSIP takes."""
_MOST_NAMES: Final = 32
"""Records of one answer that are followed."""


class DnsLookups(Protocol):
    """What names have: `sipcore.resolver.dns_client.DnsClient`. Every question may raise `LookupFailed`."""

    async def hosts_file_addresses(self, host: str) -> DnsAnswer[str]:
        """Addresses that this machine gives the name, whatever name servers say."""

    async def naptr(self, name: str) -> DnsAnswer[NaptrRecord]:
        """NAPTR records."""

    async def srv(self, name: str) -> DnsAnswer[SrvRecord]:
        """SRV records."""

    async def addresses(self, name: str, version: int) -> DnsAnswer[str]:
        """A or AAAA records."""


@dataclass(frozen=True)
class ResolvedTargets:
    """Targets by preference, and how long they hold. `whole`: every question was answered; when not, there may be
    better targets that nobody told of."""

    targets: tuple[SipTarget, ...]
    ttl_s: float
    complete: bool = True


@dataclass(frozen=True)
class SipLocator:
    """Looks for places. `speaks`: the transports that we have, those that we would choose first; `versions`: of IP.
    `elsewhere` asks the system's resolver for names that name servers do not know. `seed` decides between equals: the
    same here always, another elsewhere."""

    records: DnsLookups
    system_lookup: Callable[[str], Awaitable[DnsAnswer[str]]]
    transports: Sequence[Transport] = ("udp", "tcp")
    ip_versions: Sequence[int] = (4,)
    seed: bytes = b""

    async def locate(self, place: SipHostPort) -> ResolvedTargets:
        """Where to send. Without targets the place is not there. Raises `LookupFailed` when nobody could say."""
        pinned = await self.records.hosts_file_addresses(place.host)
        addresses = [each for each in pinned.records if _version(each) in self.ip_versions]
        if addresses:
            return ResolvedTargets(self._at(addresses, place), pinned.ttl_s)
        if place.port is not None:
            return await self._by_address(place, [])
        failures: list[LookupFailed] = []
        services, ttl_s = await self._services(place, failures)
        answers = await asyncio.gather(*(_answer(self.records.srv(name), failures) for _, name in services))
        asked = zip(services, answers, strict=True)
        found = [(transport, answer) for (transport, _), answer in asked if answer.records]
        if not found:
            return await self._by_address(place, failures)
        return await self._by_service(found, min(ttl_s, *(answer.ttl_s for _, answer in found)), failures)

    async def _services(
        self, place: SipHostPort, failures: list[LookupFailed]
    ) -> tuple[list[tuple[Transport, str]], float]:
        """The SRV names to ask, each for a transport, and how long that holds (RFC 3263, 4.1)."""
        if place.transport is not None:
            return [(place.transport, f"{_SRV_PREFIX[place.transport]}.{place.host}")], math.inf
        answer = await _answer(self.records.naptr(place.host), failures)
        offered = [
            (_SERVICES[each.service.upper()], each.replacement)
            for each in sorted(answer.records, key=lambda each: (each.order, each.preference))
            if each.flags.lower() == "s" and _SERVICES.get(each.service.upper()) in self.transports and each.replacement
        ]
        if offered:
            return offered[:_MOST_NAMES], answer.ttl_s
        return [(transport, f"{_SRV_PREFIX[transport]}.{place.host}") for transport in self.transports], math.inf

    async def _by_service(
        self, found: Sequence[tuple[Transport, DnsAnswer[SrvRecord]]], ttl_s: float, failures: list[LookupFailed]
    ) -> ResolvedTargets:
        """The servers of SRV records. One that names no target says that there is none (RFC 2782)."""
        servers = [
            (transport, record)
            for transport, answer in found
            for record in order_srv(answer.records, self.seed)
            if record.target
        ][:_MOST_NAMES]
        names = list(dict.fromkeys(record.target for _, record in servers))
        answers = await asyncio.gather(*(self._addresses(name, failures) for name in names))
        known = dict(zip(names, answers, strict=True))
        targets = tuple(
            SipTarget(address, record.port, transport)
            for transport, record in servers
            for address in known[record.target].records
        )
        if not targets and failures:
            raise failures[0]
        times = [answer.ttl_s for answer in answers if answer.records]
        return ResolvedTargets(tuple(dict.fromkeys(targets))[:_MOST], min([ttl_s, *times]), complete=not failures)

    async def _by_address(self, place: SipHostPort, failures: list[LookupFailed]) -> ResolvedTargets:
        answer = await self._addresses(place.host, failures)
        if not answer.records:
            answer = await self._system(place.host, answer, failures)
        return ResolvedTargets(self._at(answer.records, place), answer.ttl_s, complete=not failures)

    async def _system(self, host: str, answer: DnsAnswer[str], failures: list[LookupFailed]) -> DnsAnswer[str]:
        """What the system's resolver knows, when name servers know nothing. What they could not say is worth more than
        that it does not know."""
        try:
            found = await self.system_lookup(host)
        except LookupFailed as failure:
            if failures:
                raise failures[0] from failure
            return answer
        return DnsAnswer(tuple(each for each in found.records if _version(each) in self.ip_versions), found.ttl_s)

    async def _addresses(self, name: str, failures: list[LookupFailed]) -> DnsAnswer[str]:
        """IPv4 first: it is what SIP peers have got right."""
        answers = await asyncio.gather(
            *(_answer(self.records.addresses(name, version), failures) for version in sorted(self.ip_versions))
        )
        ordered = (sorted(answer.records, key=lambda address: _chance(self.seed, name, address)) for answer in answers)
        times = [answer.ttl_s for answer in answers if answer.records] or [answer.ttl_s for answer in answers]
        return DnsAnswer(tuple(address for records in ordered for address in records), min(times))

    def _at(self, addresses: Collection[str], place: SipHostPort) -> tuple[SipTarget, ...]:
        transport = place.transport or "udp"
        port = place.port or DEFAULT_PORT[transport]
        return tuple(SipTarget(address, port, transport) for address in addresses)[:_MOST]


def order_srv(records: Sequence[SrvRecord], seed: bytes) -> list[SrvRecord]:
    """By priority, and among equals drawn by weight (RFC 2782). `seed` and what the record says make the draw: the same
    records are always in the same order here, and in all the orders that there are on many machines."""
    return sorted(records, key=lambda each: (each.priority, _lot(each, seed), each.target, each.port))


def _lot(record: SrvRecord, seed: bytes) -> float:
    """The one with the shortest of such waits comes first: as often as its share of the weights. Weight 0 has next to
    no chance beside others."""
    return -math.log(_chance(seed, record.target, str(record.port))) / (record.weight or 0.001)


def _chance(seed: bytes, *words: str) -> float:
    """Above 0, up to 1, evenly spread."""
    digest = blake2b("\0".join(words).encode("utf-8", "replace"), key=seed[:64], digest_size=8).digest()
    return (int.from_bytes(digest) + 1) / 2**64


def _version(address: str) -> int:
    return 6 if isinstance(ip_address(address.partition("%")[0]), IPv6Address) else 4


async def _answer(question: Awaitable[DnsAnswer[R]], failures: list[LookupFailed]) -> DnsAnswer[R]:
    """No records when the question fails, which is noted."""
    try:
        return await question
    except LookupFailed as failure:
        failures.append(failure)
        return DnsAnswer((), math.inf)
