"""Trunk authorization: checks by the operator's grants whether a trunk may be used, before anything is sent to it, and
before an address of its host name is used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from calls.cooperative_scheduling import TimeSlice
from config.own_addresses import own_addresses
from config.special_addresses import non_unicast_kind
from storage.phone_numbers.phone_numbers import PhoneNumber, named_trunks, request_hosts
from storage.phone_numbers.trunk_grant_evaluation import (
    OPEN_RULES,
    TrunkAccessRules,
    TrunkGrant,
    TrunkPolicy,
    TrunkUser,
)

NOT_GRANTED: Final = "the operator has not given this trunk to the organization"
RESOLVES_ELSEWHERE: Final = "its host name leads to an address that the operator has not given to the organization"

AddressesOf = Callable[[str], Collection[str]]
"""Returns the current addresses of a host name."""


@dataclass(frozen=True)
class _NumberClaim:
    """The claim of a number to a host, for the rules."""

    organization_id: str
    number: str
    trunks_taken_over: Collection[str]

    @classmethod
    def of(cls, number: PhoneNumber, host: str) -> _NumberClaim:
        return cls(number.organization_id, number.number, (host,) if host in number.trunks_taken_over else ())


@dataclass(frozen=True)
class _GrantClaim:
    """The claim of a grant without numbers, in place of theirs."""

    organization_id: str
    number: str
    trunks_taken_over: Collection[str] = ()

    @classmethod
    def of(cls, grant: TrunkGrant) -> _GrantClaim:
        return cls(grant.organization_id, grant.number_pattern.replace("*", "").replace("?", "0"))


class TrunkAuthorizer:
    """`update` takes the state of the database; the other methods use that, without waiting. For the event loop
    only."""

    def __init__(self, policy: TrunkPolicy = "open") -> None:
        self.policy: Final = policy
        self.resolved_hosts: Callable[[], Mapping[str, Collection[str]]] = dict
        """Returns the current addresses of host names; the same object until they change."""
        self._last_update = self._rules = OPEN_RULES
        self._by_host: Mapping[str, Collection[TrunkUser]] = {}
        self._cached_verdicts: dict[tuple[str, str], bool] = {}
        self._cached_for = OPEN_RULES
        """The rules that the cached results of `is_allowed` were computed with."""

    async def update(self, rules: TrunkAccessRules, numbers: Iterable[PhoneNumber], time_slice: TimeSlice) -> bool:
        """Take new rules, and all numbers that have a trunk. Returns True if anything differs from before."""
        by_host: dict[str, set[TrunkUser]] = {}
        if rules.enforced:
            for number in numbers:
                await time_slice.checkpoint()
                for host in set(named_trunks(number).values()):
                    by_host.setdefault(host, set()).add(_NumberClaim.of(number, host))
            unused = [each for each in rules.grants if each.trunk not in by_host]
            for grant in unused:
                by_host.setdefault(grant.trunk, set()).add(_GrantClaim.of(grant))
        before = self._last_update, self._by_host
        self._cached_verdicts.clear()
        self._rules, self._by_host = rules, by_host
        self._last_update = replace(rules, own_addresses=own_addresses())
        return (self._last_update, by_host) != before

    def _current_rules(self) -> TrunkAccessRules:
        """Returns the rules with the current addresses of host names and of this machine, which change without an
        update."""
        if self._rules.enforced:
            leads, own = self.resolved_hosts(), own_addresses()
            if leads is not self._rules.resolved_addresses or own is not self._rules.own_addresses:
                self._rules = replace(self._rules, resolved_addresses=leads, own_addresses=own)
        return self._rules

    def is_allowed(self, host: str, address: str) -> bool:
        """True if a host name may have this address for a number that names it, or for a grant without numbers."""
        claimants = self._by_host.get(host)
        if not claimants:
            return True
        current = self._current_rules()
        if current is not self._cached_for:
            self._cached_verdicts.clear()
            self._cached_for = current
        if (known := self._cached_verdicts.get((host, address))) is None:
            known = self._cached_verdicts[host, address] = any(
                current.permission(each, host) is not None and current.may_resolve_to(each, host, address)
                for each in claimants
            )
        return known

    def problem(
        self, number: PhoneNumber, addresses_of: AddressesOf, rules: TrunkAccessRules | None = None
    ) -> str | None:
        """Returns why a number's trunk may not be used, without the addresses of its host name; None if it may.
        `rules`: newer ones than those of the last update."""
        current = self._current_rules()
        if rules is not None:
            current = replace(
                rules,
                held_trunks=current.held_trunks,
                resolved_addresses=current.resolved_addresses,
                own_addresses=current.own_addresses,
            )
        for host in request_hosts(number):
            if (what := non_unicast_kind(host)) is not None:
                return f"its address is {what}: a trunk's is that of one host"
            if current.permission(number, host) is None:
                return NOT_GRANTED
            if not all(current.may_resolve_to(number, host, each) for each in addresses_of(host)):
                return RESOLVES_ELSEWHERE
        return None
