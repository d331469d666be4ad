"""Who may call in: from a trunk and a dialled number to the agent that answers, or to the SIP status that refuses; and
how many calls there may be, whichever way."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import sqlalchemy as sa
import structlog

from config.errors import TrunklineError
from config.own_addresses import own_addresses
from sipcore.dialogs.leg import LegFacts
from sipcore.messages.headers import HeaderLines
from storage.accounts.organizations import Organization
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import OpenCalls
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.phone_numbers.phone_numbers import Contested, InboundTarget, PhoneNumber
from storage.phone_numbers.trunk_rules import Policy, TrunkRules

RETRY_AFTER_S: Final = 10
"""What a caller is told when the server is full or draining."""

log = structlog.get_logger()
SourceNames = Callable[[str], Collection[str]]
"""The names that a source has in the database: its address and the host names that resolve to it."""


def only_address(source: str) -> tuple[str]:
    """A source that nothing is known of has no other name."""
    return (source,)


class InsufficientFunds(TrunklineError):
    """A paid plan has nothing left to pay calls with."""

    status = 402

    def __init__(self) -> None:
        super().__init__("Insufficient funds. Please top up your balance.")


class Refused(TrunklineError):
    """The call is not taken; `code` is the final SIP status, `retry_after_s` goes into Retry-After, `headers` into the
    answer as well."""

    def __init__(self, code: int, why: str, retry_after_s: int | None = None, headers: HeaderLines = ()) -> None:
        super().__init__(why)
        self.code: Final = code
        self.retry_after_s: Final = retry_after_s
        self.headers: Final = headers


@dataclass(frozen=True)
class Ceilings:
    """The most calls that have not ended: of this process, and of an organization without a ceiling of its own."""

    process: int = 250
    organization: int = 100

    def full(
        self, conn: sa.Connection, organization_id: str, own: int | None, gone: Collection[str], second_legs: SecondLegs
    ) -> Literal["organization", "process"] | None:
        """Who has no place left for one more call; None when both have. `own` is the organization's own ceiling, `gone`
        are calls that count no more though their end could not be stored. In the transaction that stores the call this
        is exact: such transactions run one after the other."""
        return self.full_with(calls.count_open(conn, organization_id, gone), organization_id, own, second_legs)

    def full_with(
        self, there: OpenCalls, organization_id: str, own: int | None, second_legs: SecondLegs
    ) -> Literal["organization", "process"] | None:
        """The same with so many calls."""
        if there.organization + second_legs.of(organization_id) >= (self.organization if own is None else own):
            return "organization"
        return "process" if there.everywhere + second_legs.everywhere >= self.process else None


class SecondLegs:
    """Legs that are no calls of their own: whom a REFER has us call takes a place, until it is the call's only leg or
    has ended. `check_room` raises when there is none for one more."""

    def __init__(
        self, check_room: Callable[[sa.Connection, Organization], None], has_changed: Callable[[], None]
    ) -> None:
        self._check_room = check_room
        self.have_changed: Final = has_changed
        """Tell that there are more or fewer than before."""
        self._lock = threading.Lock()
        self._of = Counter[str]()

    def take(self, conn: sa.Connection, organization: Organization) -> None:
        """A place, in the transaction that grants it, on the database's thread. Raises `TooMany` or `Unavailable`."""
        self._check_room(conn, organization)
        with self._lock:
            self._of[organization.id] += 1

    def give_back(self, organization_id: str) -> None:
        """One that was taken; on the event loop."""
        with self._lock:
            self._of[organization_id] -= 1
            self._of += Counter()  # only what is above 0 stays
        self.have_changed()

    def of(self, organization_id: str) -> int:
        """How many an organization has."""
        return self._of[organization_id]

    @property
    def everywhere(self) -> int:
        """How many there are."""
        with self._lock:
            return self._of.total()


@dataclass(frozen=True)
class Admitted:
    """Who answers: an active agent on the number that was dialled. `max_calls` is its organization's own ceiling."""

    number: PhoneNumber
    agent: Agent
    max_calls: int | None


def find_target(conn: sa.Connection, facts: LegFacts, names: Collection[str], policy: Policy = "open") -> InboundTarget:
    """The number for an inbound leg, with its agent: by its source, which has `names` in the database, and the user of
    the request URI, else that of To, each exactly or with or without `+`, among those that may use the source by the
    operator's `policy`. `Refused`: 404 for a number that this trunk does not have, and for one that several
    organizations have there. Not 503: a PBX that got it would turn away from
    this server with every other call as well."""
    try:
        rules = replace(trunk_grants.rules(conn, policy), own=own_addresses())
        target = _dialled(conn, facts, names, rules)
    except Contested as contested:
        _tell_contested(facts, contested.numbers, None)
        raise Refused(404, "several organizations have this number from this source") from contested
    if target is None:
        raise Refused(404, "unknown number")
    if target.rivals:
        _tell_contested(facts, [target.number, *target.rivals], target.number)
    return target


def _tell_contested(facts: LegFacts, numbers: Sequence[PhoneNumber], taken: PhoneNumber | None) -> None:
    log.warning(
        "call.contested",
        source=facts.source,
        sip_call_id=facts.sip_call_id,
        numbers=[f"{each.number} ({each.id}) of organization {each.organization_id}" for each in numbers],
        taken=None if taken is None else taken.id,
        remedy="give the source to one of them alone (trunkline trunk allow, deny), or take the other number away",
    )


def admitted(target: InboundTarget) -> Admitted:
    """Who answers. `Refused`: 480 without an active agent."""
    if target.agent is None:
        raise Refused(480, "no agent answers this number")
    if not target.agent.is_active:
        raise Refused(480, "the agent is not active")
    return Admitted(target.number, target.agent, target.max_calls)


def _dialled(conn: sa.Connection, facts: LegFacts, names: Collection[str], rules: TrunkRules) -> InboundTarget | None:
    for user in dict.fromkeys((facts.request_user, facts.to.user)):
        if user and (target := phone_numbers.find_inbound(conn, names, user, rules)):
            return target
    return None
