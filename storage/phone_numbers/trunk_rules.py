"""Whose trunks are whose: which organization may use a host, a network or a registrar, by what the operator has given.
Pure: `storage.phone_numbers.trunk_grants` reads it from the database."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, Literal, Protocol

from config.special_addresses import embedded, is_inside
from storage.phone_numbers.sip_sources import is_host_name

Policy = Literal["auto", "open", "approved"]
"""`auto`: open while there is one organization, approved from the second on."""
Standing = Literal["granted", "taken_over", "open"]
"""Why a number may use a trunk: the operator has given it, the number had it before the operator was asked, or any
organization may use any trunk."""
ANY_NUMBER: Final = "*"
PATTERN: Final = re.compile(r"\+?[0-9*?]{1,32}")
ADDRESS_BITS: Final = 1000
"""How narrow an address is, above every network."""
NAME_BITS: Final = ADDRESS_BITS - 1
"""A host name that leads to the address: to hardly another one, but where it leads its owner decides."""

_BEFORE: Final = datetime.min.replace(tzinfo=UTC)
"""What was there before the operator was asked is older than all that was given."""


class Claimant(Protocol):
    """A phone number, as far as it matters here."""

    @property
    def organization_id(self) -> str:
        """Whose it is."""

    @property
    def number(self) -> str:
        """E.164 or an extension."""

    @property
    def trunks_taken_over(self) -> Collection[str]:
        """What it named, in normal form, before the operator was asked."""


@dataclass(frozen=True, kw_only=True)
class TrunkGrant:
    """A trunk that the operator has given to an organization: an address, a network (CIDR) or a host name in normal
    form, for the numbers that `number_pattern` means (`*`: anything, `?`: one digit, a leading `+` says nothing)."""

    organization_id: str
    trunk: str
    number_pattern: str
    created_at: datetime

    def covers(self, trunk: str) -> bool:
        """Whether a host or a network lies within it."""
        return _contains(self.trunk, trunk)

    def is_for(self, number: str) -> bool:
        """Whether the number is one of those that it is for."""
        return _matcher(self.number_pattern).fullmatch(number.removeprefix("+")) is not None


@dataclass(frozen=True)
class TrunkRules:
    """What holds at one moment. `held`: addresses, networks and host names that organizations use, by their ids, beside
    what was granted. `leads`: where host names lead now, whosever they are. `own`: the addresses of this machine."""

    enforced: bool
    """The policy is `approved`, or has become so."""
    grants: Sequence[TrunkGrant] = ()
    held: Mapping[str, Collection[str]] = field(default_factory=dict)
    resolved: Mapping[str, Collection[str]] = field(default_factory=dict)
    own_addresses: Collection[str] = frozenset()

    def standing(self, claimant: Claimant, trunk: str) -> Standing | None:
        """Why a number may use a host, a network or a registrar, in normal form; None when it may not."""
        if self._granted(claimant, trunk):
            return "granted"
        if trunk in claimant.trunks_taken_over:
            return "taken_over"
        return None if self.enforced else "open"

    def has_grant(self, organization_id: str, trunk: str) -> bool:
        """Whether the trunk was given to the organization, for whatever numbers."""
        return any(each.covers(trunk) for each in self._grants_of.get(organization_id, ()))

    def may_resolve_to(self, claimant: Claimant, host: str, address: str) -> bool:
        """Whether a host that the number may use may be at this address. Where a name leads, its owner decides: what
        was given by its name leads neither to this machine or a private network nor to what is another organization's,
        be it by a name that leads there, unless the operator has given the address as well. Names that were there
        before are taken as they are."""
        if not self.enforced or host in claimant.trunks_taken_over or not is_host_name(host):
            return True
        return self._granted(claimant, address) or not (
            self._is_inside(address)
            or self._is_of_others(claimant, address)
            or self._is_resolved_by_others(claimant, address)
        )

    def rank(self, claimant: Claimant, source: str, address: str) -> tuple[bool, int] | None:
        """How good the number's right is to calls from an address, which `source` is, contains or leads to; the higher
        one wins. None: it has none."""
        standing = self.standing(claimant, source)
        if standing is None or not self.may_resolve_to(claimant, source, address):
            return None
        if is_host_name(source):
            return self._granted(claimant, address), NAME_BITS
        network = ip_network(source)
        return standing == "granted", ADDRESS_BITS if network.num_addresses == 1 else network.prefixlen

    @property
    def granted_host_names(self) -> frozenset[str]:
        """The host names that were given to anybody."""
        return frozenset(each.trunk for each in self.grants if _network(each.trunk) is None)

    def _granted(self, claimant: Claimant, trunk: str) -> bool:
        grants = self._grants_of.get(claimant.organization_id, ())
        return any(each.covers(trunk) and each.is_for(claimant.number) for each in grants)

    @cached_property
    def _grants_of(self) -> Mapping[str, Sequence[TrunkGrant]]:
        found: dict[str, list[TrunkGrant]] = {}
        for each in self.grants:
            found.setdefault(each.organization_id, []).append(each)
        return found

    def _is_inside(self, address: str) -> bool:
        face = embedded(ip_address(address.partition("%")[0]))
        return is_inside(address) or str(face) in self.own_addresses or address in self.own_addresses

    def _is_of_others(self, claimant: Claimant, address: str) -> bool:
        network = _network(address)
        if network is None:
            return False
        number, bits = int(network.network_address), network.max_prefixlen
        for version, length in self._lengths:
            if version == network.version:
                holders = self._holders.get((version, length, number >> (bits - length) << (bits - length)), ())
                if any(each != claimant.organization_id for each in holders):
                    return True
        return False

    @cached_property
    def _lengths(self) -> Collection[tuple[int, int]]:
        return {(version, length) for version, length, _ in self._holders}

    @cached_property
    def _holders(self) -> Mapping[tuple[int, int, int], Collection[str]]:
        """Whose addresses and networks are, by version, prefix length and first address."""
        found: dict[tuple[int, int, int], set[str]] = {}
        for _, holder, trunk in self._holdings():
            if (network := _network(trunk)) is not None:
                key = network.version, network.prefixlen, int(network.network_address)
                found.setdefault(key, set()).add(holder)
        return found

    def _is_resolved_by_others(self, claimant: Claimant, address: str) -> bool:
        """Whether a name of another organization leads to the address, which has had its name for longer. Who was given
        that very name as well shares it."""
        if (first := self._first_holder.get(address)) is None:
            return False
        _, holder, name = first
        return holder != claimant.organization_id and self.standing(claimant, name) is None

    @cached_property
    def _first_holder(self) -> Mapping[str, tuple[datetime, str, str]]:
        """Who has had a name that leads there for longest, by address: since when, the organization, the name."""
        found: dict[str, tuple[datetime, str, str]] = {}
        for holding in self._holdings():
            for address in self.resolved.get(holding[2], ()):
                found[address] = min(holding, found.get(address, holding))
        return found

    def _holdings(self) -> Iterator[tuple[datetime, str, str]]:
        """Since when which organization has what."""
        for holder, trunks in self.held.items():
            yield from ((_BEFORE, holder, each) for each in trunks)
        yield from ((each.created_at, each.organization_id, each.trunk) for each in self.grants)


OPEN: Final = TrunkRules(enforced=False)
"""Any organization may use any trunk."""


def same_number(one: str, other: str) -> bool:
    """Whether what is dialled means both: they differ in the `+` at most."""
    return one.removeprefix("+") == other.removeprefix("+")


def is_pattern(text: str) -> bool:
    """Whether a text is a pattern of numbers."""
    return PATTERN.fullmatch(text) is not None


def literals(trunks: Iterable[str]) -> frozenset[str]:
    """Those that are addresses or networks."""
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
    around, within = _network(outer), _network(inner)
    if around is None or within is None or around.version != within.version:
        return False
    return around.prefixlen <= within.prefixlen and (
        int(around.network_address) == int(within.network_address) & int(around.netmask)
    )


@lru_cache(1024)
def _matcher(pattern: str) -> re.Pattern[str]:
    words = {"*": "[0-9]*", "?": "[0-9]"}
    return re.compile("".join(words.get(each, each) for each in re.sub(r"\*+", "*", pattern.removeprefix("+"))))
