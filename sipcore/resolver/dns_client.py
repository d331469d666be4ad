"""DNS client: NAPTR, SRV and address records, with their TTLs, and the hosts file."""

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

CONFIG_TTL_S: Final = 30.0
"""How long the system's resolver configuration and hosts file are used before they are read again."""
HOSTS_FILE_TTL_S: Final = 60.0
"""The TTL of an address in the hosts file, which states none."""
_TYPES: Final = {4: "A", 6: "AAAA"}


@dataclass(frozen=True)
class _SystemConfig:
    """The name servers and the hosts file, as read at `read_at_s`."""

    resolver: dns.asyncresolver.Resolver
    hosts_file: dict[str, tuple[str, ...]]
    read_at_s: float


class DnsClient:
    """Queries these name servers, (IP address, port), one after the other; without any, those of the system. A query
    without a response within `timeout_s` has failed."""

    def __init__(
        self, servers: Sequence[tuple[str, int]] = (), timeout_s: float = 5.0, hosts_file: Path = Path("/etc/hosts")
    ) -> None:
        self._servers = servers
        self._timeout_s = timeout_s
        self._hosts_file = hosts_file
        self._config_lock = asyncio.Lock()
        self._config: _SystemConfig | None = None

    async def hosts_file_addresses(self, host: str) -> DnsAnswer[str]:
        """The addresses of a name in the hosts file, of both IP versions."""
        system = await self._system()
        return DnsAnswer(system.hosts_file.get(host.lower(), ()), HOSTS_FILE_TTL_S)

    async def naptr(self, name: str) -> DnsAnswer[NaptrRecord]:
        """NAPTR records. Raises `LookupFailed`, as all queries."""
        records, ttl_s = await self._query(name, "NAPTR")
        return DnsAnswer(
            tuple(
                NaptrRecord(
                    each.order, each.preference, _text(each.flags), _text(each.service), _name(each.replacement)
                )
                for each in records
            ),
            ttl_s,
        )

    async def srv(self, name: str) -> DnsAnswer[SrvRecord]:
        """SRV records."""
        records, ttl_s = await self._query(name, "SRV")
        return DnsAnswer(
            tuple(SrvRecord(each.priority, each.weight, each.port, _name(each.target)) for each in records), ttl_s
        )

    async def addresses(self, name: str, version: int) -> DnsAnswer[str]:
        """A or AAAA records (`version` 4 or 6); CNAMEs are followed."""
        records, ttl_s = await self._query(name, _TYPES[version])
        return DnsAnswer(tuple(str(each.address) for each in records), ttl_s)

    async def _query(self, name: str, kind: str) -> tuple[tuple[Any, ...], float]:
        """The records and their TTL; none for a name that does not exist."""
        system = await self._system()
        try:
            answer = await system.resolver.resolve(f"{name}.", kind, search=False, raise_on_no_answer=False)
        except dns.resolver.NXDOMAIN as nxdomain:
            return (), _negative_ttl(nxdomain)
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise LookupFailed(f"{kind} of {name}: {_describe(error)}") from error
        return tuple(answer.rrset or ()), float(answer.chaining_result.minimum_ttl)

    async def _system(self) -> _SystemConfig:
        """The system's configuration, read again after `CONFIG_TTL_S`."""
        async with self._config_lock:
            if self._config is None or time.monotonic() - self._config.read_at_s > CONFIG_TTL_S:
                self._config = await asyncio.to_thread(self._read_system)
            return self._config

    def _read_system(self) -> _SystemConfig:
        return _SystemConfig(self._open_resolver(), _read_hosts(self._hosts_file), time.monotonic())

    def _open_resolver(self) -> dns.asyncresolver.Resolver:
        try:
            resolver = dns.asyncresolver.Resolver(configure=not self._servers)
        except (
            dns.resolver.NoResolverConfiguration,
            OSError,
        ):  # the hosts file and the system's resolver may still have the name
            resolver = dns.asyncresolver.Resolver(configure=False)
        if self._servers:
            resolver.nameservers = [dns.nameserver.Do53Nameserver(host, port) for host, port in self._servers]
        resolver.lifetime = self._timeout_s
        resolver.timeout = min(2.0, self._timeout_s / 2)
        return resolver


def _negative_ttl(nxdomain: dns.resolver.NXDOMAIN) -> float:
    responses: dict[object, dns.message.QueryMessage] = nxdomain.kwargs.get("responses") or {}
    return min((float(each.resolve_chaining().minimum_ttl) for each in responses.values()), default=0.0)


def _describe(error: Exception) -> str:
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
    """Names to addresses (hosts(5)); none without the file."""
    hosts: dict[str, tuple[str, ...]] = {}
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return hosts
    for line in lines:
        words = line.partition("#")[0].split()
        if len(words) > 1 and (address := _address(words[0])):
            for name in map(str.lower, words[1:]):
                hosts[name] = (*hosts.get(name, ()), address)
    return hosts


def _address(text: str) -> str | None:
    try:
        return str(ip_address(text))
    except ValueError:
        return None
