"""Dial permissions of outbound calls: trunk, allowed prefixes, funds, concurrency limits and calls per minute."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa

from calls.admission.rejection import InsufficientFunds
from calls.call_record.billing import is_balance_exhausted
from config.clock import utc_now
from config.errors import FieldProblem, Invalid, LimitExceeded, NotGranted, TrunklineError
from storage.accounts import api_keys, organizations
from storage.accounts.organizations import Organization
from storage.agents import agents
from storage.agents.agents import Agent
from storage.calls import outbound_audit
from storage.calls.calls import Call
from storage.calls.outbound_audit import Verdict
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy

_DIALABLE: Final = re.compile(r"\+[1-9][0-9]{1,14}|[0-9]{2,15}")
"""E.164, or an internal extension."""
RATE_WINDOW: Final = timedelta(seconds=60)


def allowed_destination(number: PhoneNumber | None, organization: Organization, destination: str) -> str | None:
    """Returns the number to dial for `destination`; None if it may not be called from this number. A destination is
    exactly E.164 or an internal extension of 2 to 15 digits: `0049`, separators and SIP users are not normalized, so
    that the checked number is the dialled number. The prefixes of the organization and of the number must both allow
    it; without prefixes, any destination is allowed. `number` None: only the organization's prefixes count."""
    if _DIALABLE.fullmatch(destination) is None:
        return None
    rules = (organization,) if number is None else (organization, number)
    return destination if all(_has_prefix(destination, each.outbound_prefixes) for each in rules) else None


def _has_prefix(destination: str, prefixes: Sequence[str] | None) -> bool:
    return prefixes is None or destination.startswith(tuple(prefixes))


@dataclass(frozen=True)
class DialRejection:
    """Why a call is not placed: for the audit log, and for the client."""

    verdict: Verdict
    error: TrunklineError


def dial_rejection(
    conn: sa.Connection,
    number: PhoneNumber,
    organization: Organization,
    to: str,
    check_call_capacity: Callable[[sa.Connection, Organization], None],
    policy: TrunkPolicy = "open",
) -> DialRejection | None:
    """Returns the first reason against a call that a client requests; None if there is none. Exact in the transaction
    that stores the call and its attempt, because such transactions run one after the other. `check_call_capacity`
    raises if a concurrency limit is reached."""
    if not may_use_trunk(conn, number, policy):
        problem = FieldProblem("phoneNumberId", "The operator has not given its trunk to this organization")
        return DialRejection("refused_trunk", NotGranted([problem]))
    if allowed_destination(number, organization, to) is None:
        return DialRejection("refused_prefix", Invalid([FieldProblem("to", "Calls from this number may not go there")]))
    if is_balance_exhausted(organization):
        return DialRejection("refused_funds", InsufficientFunds())
    try:
        check_call_capacity(conn, organization)
    except TrunklineError as error:
        return DialRejection("refused_ceiling", error)
    wait_s = rate_limit_wait_s(conn, number, organization, utc_now())
    if wait_s is not None:
        return DialRejection(
            "refused_rate", LimitExceeded("Too many calls per minute. Please try again later.", wait_s)
        )
    return None


def rate_limit_wait_s(
    conn: sa.Connection, number: PhoneNumber, organization: Organization, now: datetime
) -> int | None:
    """Returns for how long the limits of the number and of the organization delay one more call: whole seconds, 1 to
    60; None if they allow it now. A limit counts the calls placed in the previous 60 seconds."""
    full_since = [
        placed_at
        for limit, number_id in ((number.outbound_per_minute, number.id), (organization.outbound_per_minute, None))
        if limit is not None
        and (
            placed_at := outbound_audit.nth_newest(
                conn, limit, now - RATE_WINDOW, organization_id=organization.id, phone_number_id=number_id
            )
        )
    ]
    if not full_since:
        return None
    return min(max(math.ceil((max(full_since) + RATE_WINDOW - now).total_seconds()), 1), 60)


@dataclass(frozen=True)
class DialAuthorization:
    """Permission to dial a queued call: the number that it is dialled from, and its agent."""

    number: PhoneNumber
    agent: Agent


def may_use_trunk(conn: sa.Connection, number: PhoneNumber, policy: TrunkPolicy) -> bool:
    """True if the operator lets the number use its trunk; the addresses of host names are not checked here."""
    rules = trunk_grants.current_access_rules(conn, policy)
    return all(rules.permission(number, host) is not None for host in phone_numbers.request_hosts(number))


def recheck_dial(conn: sa.Connection, call: Call, policy: TrunkPolicy = "open") -> DialAuthorization | str:
    """Returns the number and agent of a queued call by the current state of the database; else why it is no longer
    dialled: deleting a number, narrowing prefixes or revoking an API key stops queued calls."""
    number = phone_numbers.get(conn, call.organization_id, call.phone_number_id or "")
    organization = organizations.get(conn, call.organization_id)
    agent = agents.get(conn, call.organization_id, call.agent_id or "")
    attempt = outbound_audit.attempt_of_call(conn, call.id)
    if number is None or organization is None:
        return "the number was deleted"
    if agent is None:
        return "the agent was deleted"
    if not agent.is_active:
        return "the agent is not active any more"
    if not may_use_trunk(conn, number, policy):
        return "the operator has taken the number's trunk from the organization"
    if allowed_destination(number, organization, call.customer_number) is None:
        return "calls from this number may not go there any more"
    if is_balance_exhausted(organization):
        return "the organization has no funds"
    if attempt is not None and attempt.api_key_id is not None and api_keys.is_revoked(conn, attempt.api_key_id):
        return "the API key was revoked"
    return DialAuthorization(number, agent)
