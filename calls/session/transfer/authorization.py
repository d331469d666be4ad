"""Authorizes a transfer of a call and stores it, in one transaction, by the rules of outbound calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast
from uuid import uuid4

import sqlalchemy as sa

from calls.outbound.dial_audit import log_attempt
from calls.outbound.permissions import dial_rejection
from calls.post_call.redaction import redactor
from calls.post_call.redaction.redactor import RedactionRules
from config.clock import iso, utc_now
from config.errors import Conflict, FieldProblem, Invalid, TrunklineError
from storage.accounts import organizations
from storage.accounts.organizations import Organization
from storage.calls import outbound_audit, transfers
from storage.calls.calls import Call
from storage.calls.outbound_audit import DialRequest
from storage.calls.transfers import OPEN_STATUSES, Transfer, TransferMode, TransferOrder, TransferState
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy
from storage.tables.agent_fields import TransferTarget

CheckCapacity = Callable[[sa.Connection, Organization], None]
"""Raises if a concurrency limit is reached."""

NO_NUMBER: Final = (
    "A web call has no phone number to call the target from: set phoneNumberId of the transfer target, or give the "
    "agent a phone number"
)


@dataclass(frozen=True)
class AuthorizedTransfer:
    """A transfer, as it was asked for and as it is stored, the number that it is placed from, and the rules by which
    the organization's calls are redacted."""

    transfer: Transfer
    stored: Transfer
    number: PhoneNumber
    redaction: RedactionRules


def find_target(targets: Sequence[TransferTarget], name: str) -> TransferTarget:
    """Returns the target of this name, compared without case. Raises `Invalid`."""
    by_name: Final[Mapping[str, TransferTarget]] = {target["name"].casefold(): target for target in targets}
    target = by_name.get(name.strip().casefold())
    if target is None:
        raise Invalid([FieldProblem("target", "The agent had no transfer target of this name when the call began")])
    return target


def authorize_transfer(
    conn: sa.Connection,
    call: Call,
    target: TransferTarget,
    order: TransferOrder,
    *,
    check_capacity: CheckCapacity,
    policy: TrunkPolicy,
) -> AuthorizedTransfer | TrunklineError:
    """Returns the transfer as stored, or why it is refused, which is stored in the audit log. The trunk, the prefixes,
    the funds, the limits of concurrent calls and the calls per minute must allow it."""
    if any(each.status in OPEN_STATUSES for each in transfers.of_call(conn, call.id)):
        return Conflict("A transfer of the call is under way")
    number = _number(conn, call, target)
    organization = organizations.get(conn, call.organization_id)
    if organization is None or isinstance(number, Conflict):
        return number if isinstance(number, Conflict) else Conflict("The organization was deleted")
    request = DialRequest(
        organization_id=call.organization_id,
        phone_number_id=number.id,
        destination=target["number"],
        client=None,
        number=number.number,
    )
    rejection = dial_rejection(conn, number, organization, target["number"], check_capacity, policy)
    if rejection is not None:
        attempt = outbound_audit.record(conn, request, rejection.verdict, call_id=call.id, detail=str(rejection.error))
        log_attempt(attempt)
        if rejection.verdict == "refused_prefix":  # its field is that of POST /calls
            return Invalid([FieldProblem("target", "Calls from this number may not go there")])
        return rejection.error
    at = utc_now()
    transfer = Transfer(
        id=str(uuid4()),
        organization_id=call.organization_id,
        parent_call_id=call.id,
        mode=order.mode or cast(TransferMode, target["mode"]),
        status="initiated",
        target_name=target["name"],
        number=target["number"],
        reason=order.reason,
        summary=order.summary,
        requested_by=order.requested_by,
        states=[TransferState(status="initiated", at=iso(at))],
        created_at=at,
    )
    rules = redactor.redaction_rules_of_organization(conn, call.organization_id)
    stored = redactor.redact_transfer(transfer, rules)
    transfers.insert(conn, stored)
    log_attempt(outbound_audit.record(conn, request, "transferred", call_id=call.id))
    return AuthorizedTransfer(transfer, stored, number, rules)


def _number(conn: sa.Connection, call: Call, target: TransferTarget) -> PhoneNumber | Conflict:
    """The number to call from: the target's, the call's, or the agent's, because a web call has none."""
    number_id = target.get("phone_number_id") or call.phone_number_id
    if number_id is not None:
        number = phone_numbers.get(conn, call.organization_id, number_id)
        return number or Conflict("The phone number of the transfer was deleted")
    number = phone_numbers.oldest_of_agent(conn, call.organization_id, call.agent_id or "")
    return number or Conflict(NO_NUMBER)
