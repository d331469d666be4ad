"""Source allowlist: the IP addresses of trunks, from the stored phone numbers, with host names resolved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

import sqlalchemy as sa
import structlog

from calls.cooperative_scheduling import DutyCycle
from calls.periodic_worker import PeriodicWorker
from calls.trunks.trunk_dns_watcher import TrunkDnsWatcher
from sipcore.resolver.target import SipHostPort, ip_literal_targets
from storage.database.database import Database
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy

READ_EVERY_S: Final = 300.0
"""Interval of reads of the database without a notified change."""
RETRY_S: Final = 30.0
"""The wait after a failure of the database."""
_BITS: Final = {4: 32, 6: 128}

log = structlog.get_logger()


class CidrSet:
    """A set of networks (CIDR, normal form) whose lookup of an address takes one step for each prefix length."""

    def __init__(self, networks: Collection[str] = ()) -> None:
        self._cidrs: dict[tuple[int, int, int], str] = {}
        self._lengths: set[tuple[int, int]] = set()
        for text in networks:
            network = ip_network(text)
            length = network.version, network.prefixlen
            self._lengths.add(length)
            self._cidrs[*length, int(network.network_address)] = text

    def containing(self, address: IPv4Address | IPv6Address) -> set[str]:
        """Returns the networks that contain an address."""
        number, bits = int(address), _BITS[address.version]
        networks = (
            self._cidrs.get((version, length, number >> (bits - length) << (bits - length)))
            for version, length in self._lengths
            if version == address.version
        )
        return {each for each in networks if each is not None}


class SourceAllowlist:
    """Updates the endpoint's known sources to those of the database, as far as the operator's policy allows them.
    `apply` sets their addresses and networks."""

    def __init__(
        self,
        database: Database,
        apply: Callable[[Collection[str]], None],
        dns_watcher: TrunkDnsWatcher,
        policy: TrunkPolicy = "open",
    ) -> None:
        self._database = database
        self._policy = policy
        self._apply = apply
        self._dns_watcher = dns_watcher
        self._stored: Collection[str] = ()
        self._hosts: Collection[str] = ()
        self._aliases: dict[str, set[str]] = {}
        self._networks = CidrSet()
        self._duty_cycle = DutyCycle()
        self._worker = PeriodicWorker("trunks.not_refreshed", READ_EVERY_S, RETRY_S, deprecated_field="why")
        dns_watcher.on_change.append(self._publish)

    def aliases_of(self, address: str) -> Collection[str]:
        """Returns the names of a source in the database: its address, the networks that contain it and the host names
        that resolve to it."""
        parsed = ip_address(address)
        parsed = (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed
        return {address, str(parsed)} | self._aliases.get(str(parsed), set()) | self._networks.containing(parsed)

    def on_number_change(self) -> None:
        """Read again, because a phone number was created, changed or deleted."""
        self._worker.wake()

    async def refresh(self) -> None:
        """Read the sources now; addresses of host names follow when they are resolved. Raises `StorageUnavailable`."""
        with self._duty_cycle.busy():
            await self._read()

    async def _read(self) -> None:
        self._stored, aliases = await self._database.read(self._read_sources)
        networks = [each for each in self._stored if "/" in each]
        self._hosts = {
            each for each in self._stored if "/" not in each and ip_literal_targets(SipHostPort(each)) is None
        }
        self._networks = CidrSet(networks)
        self._dns_watcher.subscribe(
            "sources",
            {
                destination: owners
                for host, owners in aliases.items()
                if ip_literal_targets(SipHostPort(host)) is None
                for destination in (SipHostPort(host), _address_lookup(host))
            },
        )
        self._publish()

    def _read_sources(self, conn: sa.Connection) -> tuple[Collection[str], Mapping[str, Collection[str]]]:
        """Returns the sources; and the organizations of sources that are not networks, and of granted host names, used
        or not, because their addresses belong to no other organization."""
        rules = trunk_grants.current_access_rules(conn, self._policy)
        stored, owners = trunk_grants.usable_sources(conn, rules), phone_numbers.source_owners(conn)
        aliases = {each: set(owners.get(each, ())) for each in stored if "/" not in each}
        granted = rules.granted_host_names if rules.enforced else ()
        for grant in rules.grants:
            if grant.trunk in granted:
                aliases.setdefault(grant.trunk, set()).add(grant.organization_id)
        return stored, aliases

    def _publish(self) -> None:
        """Apply the known sources: addresses, and the resolved addresses of host names."""
        aliases: dict[str, set[str]] = defaultdict(set)
        for source in self._stored:
            for address in self._dns_watcher.allowed_addresses(source) if source in self._hosts else (source,):
                aliases[address].add(source)
        self._aliases = dict(aliases)
        self._apply(self._aliases.keys())

    async def run(self) -> None:
        """Apply changes until cancelled."""
        await self._worker.run(self._reread, at_once=False, rest=self._duty_cycle.wait)

    async def _reread(self) -> bool:
        if self._worker.is_due:
            log.debug("trunks.reading_again")
        await self.refresh()
        return True


def _address_lookup(host: str) -> SipHostPort:
    """Returns the destination of the host's A and AAAA records, without NAPTR and SRV, because calls may come from
    these addresses, too."""
    return SipHostPort(host, 5060, "udp")
