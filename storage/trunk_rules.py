"""Whose trunks are whose: which organization may use a host, a network or a registrar, by what the operator has given.
Pure: `storage.trunk_grants` reads it from the database."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, Literal, Protocol

from config.special_addresses import is_inside
from storage.sip_places import is_host_name

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
    """What holds at one moment. `held`: addresses and networks that organizations use, by their ids, beside what was
    granted."""

    enforced: bool
    """The policy is `approved`, or has become so."""
    grants: Sequence[TrunkGrant] = ()
    held: Mapping[str, Collection[str]] = field(default_factory=dict)

    def standing(self, claimant: Claimant, trunk: str) -> Standing | None:
        """Why a number may use a host, a network or a registrar, in normal form; None when it may not."""
        if self._granted(claimant, trunk):
            return "granted"
        if trunk in claimant.trunks_taken_over:
            return "taken_over"
        return None if self.enforced else "open"

    def has_some(self, organization_id: str, trunk: str) -> bool:
        """Whether the trunk was given to the organization, for whatever numbers."""
        return any(each.covers(trunk) for each in self.grants if each.organization_id == organization_id)

    def may_lead_to(self, claimant: Claimant, host: str, address: str) -> bool:
        """Whether a host that the number may use may be at this address. Where a name leads, its owner decides: what
        was given by its name leads neither to this machine or a private network nor to what is another organization's,
        unless the operator has given the address as well. Names that were there before are taken as they are."""
        if not self.enforced or host in claimant.trunks_taken_over or not is_host_name(host):
            return True
        return self._granted(claimant, address) or not (is_inside(address) or self._is_of_others(claimant, address))

    def rank(self, claimant: Claimant, source: str, address: str) -> tuple[bool, int] | None:
        """How good the number's right is to calls from an address, which `source` is, contains or leads to; the higher
        one wins. None: it has none."""
        standing = self.standing(claimant, source)
        if standing is None or not self.may_lead_to(claimant, source, address):
            return None
        if is_host_name(source):
            return self._granted(claimant, address), NAME_BITS
        network = ip_network(source)
        return standing == "granted", ADDRESS_BITS if network.num_addresses == 1 else network.prefixlen

    def _granted(self, claimant: Claimant, trunk: str) -> bool:
        return any(
            each.organization_id == claimant.organization_id and each.covers(trunk) and each.is_for(claimant.number)
            for each in self.grants
        )

    def _is_of_others(self, claimant: Claimant, address: str) -> bool:
        own = claimant.organization_id
        if any(each.organization_id != own and each.covers(address) for each in self.grants):
            return True
        return any(_contains(each, address) for holder, trunks in self.held.items() if holder != own for each in trunks)


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


@lru_cache(4096)
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
