"""Number routing of inbound calls: maps the source and the dialled number to the active agent that answers, or to the
SIP status that rejects the call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa
import structlog

from calls.admission.rejection import CallRejected
from config.own_addresses import own_addresses
from sipcore.dialogs.leg import InviteFacts
from storage.agents.agents import Agent
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.phone_numbers.phone_numbers import AmbiguousNumber, InboundMatch, PhoneNumber
from storage.phone_numbers.trunk_grant_evaluation import TrunkAccessRules, TrunkPolicy

log = structlog.get_logger()
SourceAliases = Callable[[str], Collection[str]]
"""Returns the names of a source address in the database: itself, and the host names that resolve to it."""


def no_aliases(source: str) -> tuple[str]:
    """Returns the aliases of a source that no host name resolves to: itself."""
    return (source,)


@dataclass(frozen=True)
class InboundRoute:
    """The active agent that answers, and the number that was dialled. `max_calls` is the organization's own limit."""

    number: PhoneNumber
    agent: Agent
    max_calls: int | None


def match_number(
    conn: sa.Connection, facts: InviteFacts, aliases: Collection[str], policy: TrunkPolicy = "open"
) -> InboundMatch:
    """Returns the number, with its agent, that an inbound INVITE is for: by its source, known to the database by these
    `aliases`, and by the user of the request URI, else of To, each exactly or with or without `+`. Only numbers that
    may use the source under the operator's `policy` match. Raises `CallRejected`: 404 if the trunk has no such number,
    or several organizations have it. Not 503, because a PBX would then send no other call to this server either."""
    try:
        rules = replace(trunk_grants.current_access_rules(conn, policy), own_addresses=own_addresses())
        target = _match_dialled(conn, facts, aliases, rules)
    except AmbiguousNumber as error:
        _log_ambiguous(facts, error.numbers, None)
        raise CallRejected(404, "several organizations have this number from this source") from error
    if target is None:
        raise CallRejected(404, "unknown number")
    if target.other_matches:
        _log_ambiguous(facts, [target.number, *target.other_matches], target.number)
    return target


def _log_ambiguous(facts: InviteFacts, numbers: Sequence[PhoneNumber], matched: PhoneNumber | None) -> None:
    log.warning(
        "call.contested",
        source=facts.source,
        sip_call_id=facts.sip_call_id,
        numbers=[f"{each.number} ({each.id}) of organization {each.organization_id}" for each in numbers],
        taken=None if matched is None else matched.id,
        remedy="grant the source to one of them alone (trunkline trunk allow, deny), or delete the other number",
    )


def require_active_agent(target: InboundMatch) -> InboundRoute:
    """Returns the route of a matched number. Raises `CallRejected` (480) without an active agent."""
    if target.agent is None:
        raise CallRejected(480, "no agent answers this number")
    if not target.agent.is_active:
        raise CallRejected(480, "the agent is not active")
    return InboundRoute(target.number, target.agent, target.max_calls)


def _match_dialled(
    conn: sa.Connection, facts: InviteFacts, names: Collection[str], rules: TrunkAccessRules
) -> InboundMatch | None:
    for user in dict.fromkeys((facts.request_user, facts.to_addr.user)):
        if user and (target := phone_numbers.match_inbound(conn, names, user, rules)):
            return target
    return None
