"""Evaluation of trunk grants: which organization may use a host, a network or a registrar. Pure:
`storage.phone_numbers.trunk_grants` stores the grants, and `calls.trunks.trunk_authorization` asks before a trunk is
used."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, Literal, Protocol

from config.special_addresses import embedded_ipv4, is_internal
from storage.phone_numbers.sip_sources import is_host_name

TrunkPolicy = Literal["auto", "open", "approved"]
"""The setting `[trunks] policy`. `auto`: open while there is one organization, approved from the second on."""
TrunkPermission = Literal["granted", "taken_over", "open"]
"""Why a number may use a trunk: the operator has granted it, the number named it before grants were required, or any
organization may use any trunk."""
ANY_NUMBER: Final = "*"
NUMBER_PATTERN: Final = re.compile(r"\+?[0-9*?]{1,32}")
ADDRESS_RANK: Final = 1000
"""The rank of an address, above every network."""
NAME_RANK: Final = ADDRESS_RANK - 1
"""The rank of a host name that resolves to the address: below the address, because the name's owner decides where it
resolves to."""

_BEFORE: Final = datetime.min.replace(tzinfo=UTC)
"""The time of trunks that were taken over, which are older than all grants."""


class TrunkUser(Protocol):
    """A phone number that uses trunks."""

    @property
    def organization_id(self) -> str:
        """Its organization."""

    @property
    def number(self) -> str:
        """E.164 or an extension."""

    @property
    def trunks_taken_over(self) -> Collection[str]:
        """Trunks, in normal form, that it named before grants were required."""


@dataclass(frozen=True, kw_only=True)
class TrunkGrant:
    """A trunk granted to an organization: an address, a network (CIDR) or a host name in normal form, for the numbers
    that match `number_pattern` (`*`: anything, `?`: one digit, a leading `+` is ignored)."""

    organization_id: str
    trunk: str
    number_pattern: str
    created_at: datetime

    def covers(self, trunk: str) -> bool:
        """True if a host or a network lies within the trunk."""
        return _contains(self.trunk, trunk)

    def matches_number(self, number: str) -> bool:
        """True if the number matches the pattern."""
        return _matcher(self.number_pattern).fullmatch(number.removeprefix("+")) is not None


@dataclass(frozen=True)
class TrunkAccessRules:
    """The grants at a point in time, and what they permit. `held_trunks`: addresses, networks and host names that
    organizations use besides their grants, by organization. `resolved_addresses`: the addresses that host names resolve
    to now. `own_addresses`: the addresses of this machine."""

    enforced: bool
    """True if trunks must be granted: the policy is `approved`, or `auto` with several organizations."""
    grants: Sequence[TrunkGrant] = ()
    held_trunks: Mapping[str, Collection[str]] = field(default_factory=dict)
    resolved_addresses: Mapping[str, Collection[str]] = field(default_factory=dict)
    own_addresses: Collection[str] = frozenset()

    def permission(self, user: TrunkUser, trunk: str) -> TrunkPermission | None:
        """Why a number may use a host, a network or a registrar, in normal form; None when it may not."""
        if self._granted(user, trunk):
            return "granted"
        if trunk in user.trunks_taken_over:
            return "taken_over"
        return None if self.enforced else "open"

    def has_grant(self, organization_id: str, trunk: str) -> bool:
        """True if the trunk was granted to the organization, for any numbers."""
        return any(each.covers(trunk) for each in self._grants_of.get(organization_id, ()))

    def may_resolve_to(self, user: TrunkUser, host: str, address: str) -> bool:
        """True if a host that the number may use may have this address. The owner of a name decides where it resolves
        to, so a granted name must not resolve to this machine, to a private network, to an address of another
        organization, or to one that the other's older name resolves to, unless the operator has granted the address,
        too. Names that were taken over may resolve to any address."""
        if not self.enforced or host in user.trunks_taken_over or not is_host_name(host):
            return True
        return self._granted(user, address) or not (
            self._is_internal(address)
            or self._is_of_others(user, address)
            or self._is_resolved_by_others(user, address)
        )

    def rank(self, user: TrunkUser, source: str, address: str) -> tuple[bool, int] | None:
        """Returns the rank of the number for calls from an address, which `source` is, contains or resolves to; the
        highest rank gets the call. None: it may not receive them."""
        permission = self.permission(user, source)
        if permission is None or not self.may_resolve_to(user, source, address):
            return None
        if is_host_name(source):
            return self._granted(user, address), NAME_RANK
        network = ip_network(source)
        return permission == "granted", ADDRESS_RANK if network.num_addresses == 1 else network.prefixlen

    @property
    def granted_host_names(self) -> frozenset[str]:
        """The host names that were granted to any organization."""
        return frozenset(each.trunk for each in self.grants if _network(each.trunk) is None)

    def _granted(self, user: TrunkUser, trunk: str) -> bool:
        grants = self._grants_of.get(user.organization_id, ())
        return any(each.covers(trunk) and each.matches_number(user.number) for each in grants)

    @cached_property
    def _grants_of(self) -> Mapping[str, Sequence[TrunkGrant]]:
        found: dict[str, list[TrunkGrant]] = {}
        for each in self.grants:
            found.setdefault(each.organization_id, []).append(each)
        return found

    def _is_internal(self, address: str) -> bool:
        inner = embedded_ipv4(ip_address(address.partition("%")[0]))
        return is_internal(address) or str(inner) in self.own_addresses or address in self.own_addresses

    def _is_of_others(self, user: TrunkUser, address: str) -> bool:
        network = _network(address)
        if network is None:
            return False
        number, bits = int(network.network_address), network.max_prefixlen
        for version, length in self._lengths:
            if version == network.version:
                holders = self._holders.get((version, length, number >> (bits - length) << (bits - length)), ())
                if any(each != user.organization_id for each in holders):
                    return True
        return False

    @cached_property
    def _lengths(self) -> Collection[tuple[int, int]]:
        return {(version, length) for version, length, _ in self._holders}

    @cached_property
    def _holders(self) -> Mapping[tuple[int, int, int], Collection[str]]:
        """The organizations of addresses and networks, by version, prefix length and first address."""
        found: dict[tuple[int, int, int], set[str]] = {}
        for _, holder, trunk in self._holdings():
            if (network := _network(trunk)) is not None:
                key = network.version, network.prefixlen, int(network.network_address)
                found.setdefault(key, set()).add(holder)
        return found

    def _is_resolved_by_others(self, user: TrunkUser, address: str) -> bool:
        """True if a name of another organization resolves to the address and is older. An organization that was granted
        the same name shares it."""
        if (first := self._first_holder.get(address)) is None:
            return False
        _, holder, name = first
        return holder != user.organization_id and self.permission(user, name) is None

    @cached_property
    def _first_holder(self) -> Mapping[str, tuple[datetime, str, str]]:
        """The oldest name that resolves to each address: its time, organization and name."""
        found: dict[str, tuple[datetime, str, str]] = {}
        for holding in self._holdings():
            for address in self.resolved_addresses.get(holding[2], ()):
                found[address] = min(holding, found.get(address, holding))
        return found

    def _holdings(self) -> Iterator[tuple[datetime, str, str]]:
        """Trunks of organizations: time, organization, trunk."""
        for holder, trunks in self.held_trunks.items():
            yield from ((_BEFORE, holder, each) for each in trunks)
        yield from ((each.created_at, each.organization_id, each.trunk) for each in self.grants)


OPEN_RULES: Final = TrunkAccessRules(enforced=False)
"""Any organization may use any trunk."""


def is_same_number(one: str, other: str) -> bool:
    """True if two numbers differ at most in the `+`, so that a dialled number matches both."""
    return one.removeprefix("+") == other.removeprefix("+")


def is_number_pattern(text: str) -> bool:
    """True if a text is a number pattern."""
    return NUMBER_PATTERN.fullmatch(text) is not None


def literal_sources(trunks: Iterable[str]) -> frozenset[str]:
    """The addresses and networks among these trunks."""
    return frozenset(each for each in trunks if not is_host_name(each))


@lru_cache(16384)
def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


def _contains(outer: str, inner: str) -> bool:
    if outer == inner:
        return True
    outer_network, inner_network = _network(outer), _network(inner)
    if outer_network is None or inner_network is None or outer_network.version != inner_network.version:
        return False
    return outer_network.prefixlen <= inner_network.prefixlen and (
        int(outer_network.network_address) == int(inner_network.network_address) & int(outer_network.netmask)
    )


@lru_cache(1024)
def _matcher(pattern: str) -> re.Pattern[str]:
    wildcards = {"*": "[0-9]*", "?": "[0-9]"}
    return re.compile("".join(wildcards.get(each, each) for each in re.sub(r"\*+", "*", pattern.removeprefix("+"))))
