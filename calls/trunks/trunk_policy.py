"""Which trunks may be used now, by what the operator has given: the one place that is asked before anything is sent to
a trunk, and before a host name is believed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from calls.cooperative import TimeSlice
from config.own_addresses import own_addresses
from config.special_addresses import why_no_unicast
from storage.phone_numbers.phone_numbers import PhoneNumber, named_trunks, used_hosts
from storage.phone_numbers.trunk_rules import OPEN, Claimant, Policy, TrunkGrant, TrunkRules

NOT_GIVEN: Final = "the operator has not given this trunk to the organization"
LEADS_ELSEWHERE: Final = "its host name leads to an address that the operator has not given to the organization"

AddressesOf = Callable[[str], Collection[str]]
"""The addresses that a host name has at the moment."""


@dataclass(frozen=True)
class _User:
    """What counts of a number that names a host."""

    organization_id: str
    number: str
    trunks_taken_over: Collection[str]

    @classmethod
    def of(cls, number: PhoneNumber, host: str) -> _User:
        return cls(number.organization_id, number.number, (host,) if host in number.trunks_taken_over else ())


@dataclass(frozen=True)
class _FirstNumber:
    """Stands for the numbers that a trunk was given for while there is none."""

    organization_id: str
    number: str
    trunks_taken_over: Collection[str] = ()

    @classmethod
    def of(cls, grant: TrunkGrant) -> _FirstNumber:
        return cls(grant.organization_id, grant.number_pattern.replace("*", "").replace("?", "0"))


class TrunkPolicy:
    """`update` says what the database has; the rest answers from that, at once. Use it on the event loop."""

    def __init__(self, policy: Policy = "open") -> None:
        self.policy: Final = policy
        self.leads: Callable[[], Mapping[str, Collection[str]]] = dict
        """Where host names lead now; the same object until that changes."""
        self._told = self._rules = OPEN
        self._by_host: Mapping[str, Collection[Claimant]] = {}
        self._permitted: dict[tuple[str, str], bool] = {}
        self._permitted_by = OPEN
        """What `permits` has said, and the rules that it looked at."""

    async def update(self, rules: TrunkRules, numbers: Iterable[PhoneNumber], slices: TimeSlice) -> bool:
        """What holds from now on, and all numbers that have a trunk; whether that differs from before."""
        by_host: dict[str, set[Claimant]] = {}
        if rules.enforced:
            for number in numbers:
                await slices.checkpoint()
                for host in set(named_trunks(number).values()):
                    by_host.setdefault(host, set()).add(_User.of(number, host))
            unused = [each for each in rules.grants if each.trunk not in by_host]
            for grant in unused:
                by_host.setdefault(grant.trunk, set()).add(_FirstNumber.of(grant))
        before = self._told, self._by_host
        self._permitted.clear()
        self._rules, self._by_host = rules, by_host
        self._told = replace(rules, own_addresses=own_addresses())
        return (self._told, by_host) != before

    def _now(self) -> TrunkRules:
        """What holds at this moment: names move, and this machine may get addresses, without an update."""
        if self._rules.enforced:
            leads, own = self.leads(), own_addresses()
            if leads is not self._rules.resolved or own is not self._rules.own_addresses:
                self._rules = replace(self._rules, resolved=leads, own_addresses=own)
        return self._rules

    def permits(self, host: str, address: str) -> bool:
        """Whether a host name may lead to the address for any number that names it, or could."""
        users = self._by_host.get(host)
        if not users:
            return True
        now = self._now()
        if now is not self._permitted_by:
            self._permitted.clear()
            self._permitted_by = now
        if (known := self._permitted.get((host, address))) is None:
            known = self._permitted[host, address] = any(
                now.standing(each, host) is not None and now.may_resolve_to(each, host, address) for each in users
            )
        return known

    def problem(self, number: PhoneNumber, addresses_of: AddressesOf, rules: TrunkRules | None = None) -> str | None:
        """Why nothing is sent to a number's trunk, in words that tell nothing of where its host name leads; None when
        it may be used. `rules`: newer ones than the last update's."""
        now = self._now()
        if rules is not None:
            now = replace(rules, held=now.held, resolved=now.resolved, own_addresses=now.own_addresses)
        for host in used_hosts(number):
            if (what := why_no_unicast(host)) is not None:
                return f"its address is {what}: a trunk's is that of one host"
            if now.standing(number, host) is None:
                return NOT_GIVEN
            if not all(now.may_resolve_to(number, host, each) for each in addresses_of(host)):
                return LEADS_ELSEWHERE
        return None
