"""Which trunks may be used now, by what the operator has given: the one place that is asked before anything is sent to
a trunk, and before a host name is believed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from config.special_addresses import why_no_unicast
from storage.phone_numbers import PhoneNumber, named_trunks, used_hosts
from storage.trunk_rules import OPEN, Policy, TrunkRules

NOT_GIVEN: Final = "the operator has not given this trunk to the organization"
LEADS_ELSEWHERE: Final = "its host name leads to an address that the operator has not given to the organization"

AddressesOf = Callable[[str], Collection[str]]
"""The addresses that a host name has at the moment."""


class TrunkGate:
    """`update` says what the database has; the rest answers from that, at once. Use it on the event loop."""

    def __init__(self, policy: Policy = "open") -> None:
        self.policy: Final = policy
        self._rules = OPEN
        self._by_host: Mapping[str, Sequence[PhoneNumber]] = {}

    def update(self, rules: TrunkRules, numbers: Iterable[PhoneNumber]) -> bool:
        """What holds from now on, and all numbers that have a trunk; whether that differs from before."""
        before = self._rules, self._by_host
        by_host: dict[str, list[PhoneNumber]] = {}
        for number in numbers if rules.enforced else ():
            for host in set(named_trunks(number).values()):
                by_host.setdefault(host, []).append(number)
        self._rules, self._by_host = rules, by_host
        return (rules, by_host) != before

    def permits(self, host: str, address: str) -> bool:
        """Whether a host name may lead to the address for any number that names it."""
        users = self._by_host.get(host)
        return not users or any(
            self._rules.standing(each, host) is not None and self._rules.may_lead_to(each, host, address)
            for each in users
        )

    def problem(self, number: PhoneNumber, addresses_of: AddressesOf, rules: TrunkRules | None = None) -> str | None:
        """Why nothing is sent to a number's trunk, in words that tell nothing of where its host name leads; None when
        it may be used. `rules`: newer ones than the last update's."""
        now = self._rules if rules is None else replace(rules, held=self._rules.held)
        for host in used_hosts(number):
            if (what := why_no_unicast(host)) is not None:
                return f"its address is {what}: a trunk's is that of one host"
            if now.standing(number, host) is None:
                return NOT_GIVEN
            if not all(now.may_lead_to(number, host, each) for each in addresses_of(host)):
                return LEADS_ELSEWHERE
        return None
