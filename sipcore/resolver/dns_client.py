"""Questions to name servers: NAPTR, SRV and address records, with how long their answers hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import dns.asyncresolver
import dns.exception
import dns.message
import dns.nameserver
import dns.rcode
import dns.resolver

from sipcore.resolver.dns_records import DnsAnswer, LookupFailed, NaptrRecord, SrvRecord

CONFIG_AGAIN_S: Final = 30.0
"""How long what the system says of its name servers and its hosts file is believed."""
PINNED_S: Final = 60.0
"""How long an address in the hosts file holds: it has no time of its own."""
_TYPES: Final = {4: "A", 6: "AAAA"}


@dataclass(frozen=True)
class _System:
    """Whom to ask, and what the hosts file says, as read at `at_s`."""

    resolver: dns.asyncresolver.Resolver
    pinned: dict[str, tuple[str, ...]]
    at_s: float


class DnsClient:
    """Asks these servers, (IP address, port), one after the other; without any, those of the system. A question that
    none has answered after `timeout_s` has failed."""

    def __init__(
        self, servers: Sequence[tuple[str, int]] = (), timeout_s: float = 5.0, hosts_file: Path = Path("/etc/hosts")
    ) -> None:
        self._servers = servers
        self._timeout_s = timeout_s
        self._hosts_file = hosts_file
        self._reading = asyncio.Lock()
        self._read: _System | None = None

    async def hosts_file_addresses(self, host: str) -> DnsAnswer[str]:
        """The addresses that the hosts file gives a name, of both versions of IP."""
        system = await self._system()
        return DnsAnswer(system.pinned.get(host.lower(), ()), PINNED_S)

    async def naptr(self, name: str) -> DnsAnswer[NaptrRecord]:
        """NAPTR records. Raises `LookupFailed`, as all of these."""
        found, ttl_s = await self._ask(name, "NAPTR")
        return DnsAnswer(
            tuple(
                NaptrRecord(
                    each.order, each.preference, _text(each.flags), _text(each.service), _name(each.replacement)
                )
                for each in found
            ),
            ttl_s,
        )

    async def srv(self, name: str) -> DnsAnswer[SrvRecord]:
        """SRV records."""
        found, ttl_s = await self._ask(name, "SRV")
        return DnsAnswer(
            tuple(SrvRecord(each.priority, each.weight, each.port, _name(each.target)) for each in found), ttl_s
        )

    async def addresses(self, name: str, version: int) -> DnsAnswer[str]:
        """Addresses of one version of IP, CNAMEs followed."""
        found, ttl_s = await self._ask(name, _TYPES[version])
        return DnsAnswer(tuple(str(each.address) for each in found), ttl_s)

    async def _ask(self, name: str, kind: str) -> tuple[tuple[Any, ...], float]:
        """Records and their time. A name that is not there has none."""
        system = await self._system()
        try:
            answer = await system.resolver.resolve(f"{name}.", kind, search=False, raise_on_no_answer=False)
        except dns.resolver.NXDOMAIN as nothing:
            return (), _negative_ttl(nothing)
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise LookupFailed(f"{kind} of {name}: {_why(error)}") from error
        return tuple(answer.rrset or ()), float(answer.chaining_result.minimum_ttl)

    async def _system(self) -> _System:
        """What the system says, read now and then."""
        async with self._reading:
            if self._read is None or time.monotonic() - self._read.at_s > CONFIG_AGAIN_S:
                self._read = await asyncio.to_thread(self._look)
            return self._read

    def _look(self) -> _System:
        return _System(self._open_resolver(), _read_hosts(self._hosts_file), time.monotonic())

    def _open_resolver(self) -> dns.asyncresolver.Resolver:
        try:
            resolver = dns.asyncresolver.Resolver(configure=not self._servers)
        except (dns.resolver.NoResolverConfiguration, OSError):  # then names are what other sources know
            resolver = dns.asyncresolver.Resolver(configure=False)
        if self._servers:
            resolver.nameservers = [dns.nameserver.Do53Nameserver(host, port) for host, port in self._servers]
        resolver.lifetime = self._timeout_s
        resolver.timeout = min(2.0, self._timeout_s / 2)
        return resolver


def _negative_ttl(nothing: dns.resolver.NXDOMAIN) -> float:
    responses: dict[object, dns.message.QueryMessage] = nothing.kwargs.get("responses") or {}
    return min((float(each.resolve_chaining().minimum_ttl) for each in responses.values()), default=0.0)


def _why(error: Exception) -> str:
    match error:
        case dns.exception.Timeout():
            return "no answer in time"
        case dns.resolver.NoNameservers():
            codes = {dns.rcode.to_text(each[4].rcode()) for each in error.kwargs.get("errors", ()) if each[4]}
            return ", ".join(sorted(codes)) or "no name server can be asked"
    return str(error) or type(error).__name__


def _text(value: bytes) -> str:
    return value.decode("ascii", "replace")


def _name(value: object) -> str:
    return str(value).lower().removesuffix(".")


def _read_hosts(path: Path) -> dict[str, tuple[str, ...]]:
    """Names to addresses, as hosts(5) says. A file that is not there holds none."""
    found: dict[str, tuple[str, ...]] = {}
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        words = line.partition("#")[0].split()
        if len(words) > 1 and (address := _address(words[0])):
            for name in map(str.lower, words[1:]):
                found[name] = (*found.get(name, ()), address)
    return found


def _address(text: str) -> str | None:
    try:
        return str(ip_address(text))
    except ValueError:
        return None
