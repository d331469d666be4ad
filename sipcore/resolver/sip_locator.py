"""Locates SIP servers (RFC 3263, 4): NAPTR, then SRV, then address records."""

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
_MAX_TARGETS: Final = 16
"""Targets of one host: PJSIP's maximum."""
_MAX_RECORDS: Final = 32
"""Records of one answer that are followed."""


class DnsLookups(Protocol):
    """The DNS queries, as `sipcore.resolver.dns_client.DnsClient` makes them. Each may raise `LookupFailed`."""

    async def hosts_file_addresses(self, host: str) -> DnsAnswer[str]:
        """Addresses in the hosts file, which are preferred to those of name servers."""

    async def naptr(self, name: str) -> DnsAnswer[NaptrRecord]:
        """NAPTR records."""

    async def srv(self, name: str) -> DnsAnswer[SrvRecord]:
        """SRV records."""

    async def addresses(self, name: str, version: int) -> DnsAnswer[str]:
        """A or AAAA records."""


@dataclass(frozen=True)
class ResolvedTargets:
    """Targets by preference, and how long they are valid. `complete`: every query was answered; if not, there may be
    better targets."""

    targets: tuple[SipTarget, ...]
    ttl_s: float
    complete: bool = True


@dataclass(frozen=True)
class SipLocator:
    """Resolves hosts. `system_lookup` queries the system's resolver for names that name servers do not know.
    `transports`: those of the endpoint, preferred first. `seed` orders equal targets: constant in one process, and
    different in others, which spreads the load."""

    records: DnsLookups
    system_lookup: Callable[[str], Awaitable[DnsAnswer[str]]]
    transports: Sequence[Transport] = ("udp", "tcp")
    ip_versions: Sequence[int] = (4,)
    seed: bytes = b""

    async def locate(self, host_port: SipHostPort) -> ResolvedTargets:
        """The targets of a host; none when it does not exist. Raises `LookupFailed` when no name server answers."""
        in_hosts_file = await self.records.hosts_file_addresses(host_port.host)
        addresses = [each for each in in_hosts_file.records if _version(each) in self.ip_versions]
        if addresses:
            return ResolvedTargets(self._targets_at(addresses, host_port), in_hosts_file.ttl_s)
        if host_port.port is not None:
            return await self._by_address(host_port, [])
        failures: list[LookupFailed] = []
        services, ttl_s = await self._services(host_port, failures)
        answers = await asyncio.gather(*(_answer_or_empty(self.records.srv(name), failures) for _, name in services))
        queried = zip(services, answers, strict=True)
        srv_answers = [(transport, answer) for (transport, _), answer in queried if answer.records]
        if not srv_answers:
            return await self._by_address(host_port, failures)
        return await self._by_service(srv_answers, min(ttl_s, *(answer.ttl_s for _, answer in srv_answers)), failures)

    async def _services(
        self, host_port: SipHostPort, failures: list[LookupFailed]
    ) -> tuple[list[tuple[Transport, str]], float]:
        """The SRV names of each transport, and how long they are valid (RFC 3263, 4.1)."""
        if host_port.transport is not None:
            return [(host_port.transport, f"{_SRV_PREFIX[host_port.transport]}.{host_port.host}")], math.inf
        answer = await _answer_or_empty(self.records.naptr(host_port.host), failures)
        offered = [
            (_SERVICES[each.service.upper()], each.replacement)
            for each in sorted(answer.records, key=lambda each: (each.order, each.preference))
            if each.flags.lower() == "s" and _SERVICES.get(each.service.upper()) in self.transports and each.replacement
        ]
        if offered:
            return offered[:_MAX_RECORDS], answer.ttl_s
        return [(transport, f"{_SRV_PREFIX[transport]}.{host_port.host}") for transport in self.transports], math.inf

    async def _by_service(
        self, srv_answers: Sequence[tuple[Transport, DnsAnswer[SrvRecord]]], ttl_s: float, failures: list[LookupFailed]
    ) -> ResolvedTargets:
        """The targets of SRV records; an empty target means that the service is not offered (RFC 2782)."""
        servers = [
            (transport, record)
            for transport, answer in srv_answers
            for record in order_srv(answer.records, self.seed)
            if record.target
        ][:_MAX_RECORDS]
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
        return ResolvedTargets(
            tuple(dict.fromkeys(targets))[:_MAX_TARGETS], min([ttl_s, *times]), complete=not failures
        )

    async def _by_address(self, host_port: SipHostPort, failures: list[LookupFailed]) -> ResolvedTargets:
        answer = await self._addresses(host_port.host, failures)
        if not answer.records:
            answer = await self._system_addresses(host_port.host, answer, failures)
        return ResolvedTargets(self._targets_at(answer.records, host_port), answer.ttl_s, complete=not failures)

    async def _system_addresses(
        self, host: str, answer: DnsAnswer[str], failures: list[LookupFailed]
    ) -> DnsAnswer[str]:
        """The addresses of the system's resolver, when name servers have none. A failure of name servers is raised in
        preference to its own."""
        try:
            system_answer = await self.system_lookup(host)
        except LookupFailed as failure:
            if failures:
                raise failures[0] from failure
            return answer
        return DnsAnswer(
            tuple(each for each in system_answer.records if _version(each) in self.ip_versions), system_answer.ttl_s
        )

    async def _addresses(self, name: str, failures: list[LookupFailed]) -> DnsAnswer[str]:
        """The addresses of a name, IPv4 first, because more SIP peers support it."""
        answers = await asyncio.gather(
            *(_answer_or_empty(self.records.addresses(name, version), failures) for version in sorted(self.ip_versions))
        )
        ordered = (sorted(answer.records, key=lambda address: _uniform(self.seed, name, address)) for answer in answers)
        times = [answer.ttl_s for answer in answers if answer.records] or [answer.ttl_s for answer in answers]
        return DnsAnswer(tuple(address for records in ordered for address in records), min(times))

    def _targets_at(self, addresses: Collection[str], host_port: SipHostPort) -> tuple[SipTarget, ...]:
        transport = host_port.transport or "udp"
        port = host_port.port or DEFAULT_PORT[transport]
        return tuple(SipTarget(address, port, transport) for address in addresses)[:_MAX_TARGETS]


def order_srv(records: Sequence[SrvRecord], seed: bytes) -> list[SrvRecord]:
    """SRV records by priority, and in weighted random order among equals (RFC 2782). The draw depends on `seed` and the
    record: the order is constant in one process, and varies over many machines."""
    return sorted(records, key=lambda each: (each.priority, _srv_order(each, seed), each.target, each.port))


def _srv_order(record: SrvRecord, seed: bytes) -> float:
    """An exponential variate by weight: the smallest comes first, in proportion to its weight. Weight 0 almost never
    does."""
    return -math.log(_uniform(seed, record.target, str(record.port))) / (record.weight or 0.001)


def _uniform(seed: bytes, *words: str) -> float:
    """Uniform in (0, 1]."""
    digest = blake2b("\0".join(words).encode("utf-8", "replace"), key=seed[:64], digest_size=8).digest()
    return (int.from_bytes(digest) + 1) / 2**64


def _version(address: str) -> int:
    return 6 if isinstance(ip_address(address.partition("%")[0]), IPv6Address) else 4


async def _answer_or_empty(query: Awaitable[DnsAnswer[R]], failures: list[LookupFailed]) -> DnsAnswer[R]:
    """The answer to a query; on failure none, and the failure is added to the list."""
    try:
        return await query
    except LookupFailed as failure:
        failures.append(failure)
        return DnsAnswer((), math.inf)
