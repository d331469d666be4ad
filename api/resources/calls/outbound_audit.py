"""Audit log of POST /calls: records every request for an outbound call, also a rejected one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import sqlalchemy as sa
from aiohttp import web
from pydantic_core import from_json, to_json

from api.auth.principal import PRINCIPAL
from api.routing.route import RequestContext
from api.schemas.base import UUID_PATTERN
from calls.outbound import dial_audit
from calls.outbound.permissions import DialRejection
from config.errors import Invalid, TrunklineError
from sipcore.messages.headers import printable
from storage.calls import outbound_audit
from storage.calls.outbound_audit import DialRequest
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber

COMMAND_LINE: Final = "command line"
"""The client of calls that the operator places."""
MAX_DESTINATION: Final = 64
MAX_DETAIL: Final = 200
"""Characters of the destination and of the reason that are stored."""


def new_dial_request(
    request: web.Request | None, owner: str, to: str, number_id: str | None, number: PhoneNumber | None
) -> DialRequest:
    """Returns the audit log's description of the requested call. `number` is the phone number with the id `number_id`
    in the organization `owner`. Without a request, it is the operator's, who has no key; nor has a user."""
    key = None if request is None else request[PRINCIPAL].key
    return DialRequest(
        organization_id=owner,
        phone_number_id=number_id,
        destination=printable(to, MAX_DESTINATION),
        client=COMMAND_LINE if request is None else request.remote,
        number=None if number is None else number.number,
        api_key_id=None if key is None else key.id,
        api_key_prefix=None if key is None else key.prefix,
    )


@contextmanager
def audit_errors(context: RequestContext[Any, Any], dial_request: DialRequest) -> Iterator[None]:
    """Record an error that the block raises, which rejects the request, in the audit log."""
    try:
        yield
    except TrunklineError as error:
        rejection = DialRejection("refused_request", error)
        context.after_rejection.append(partial(audit_rejection, dial_request=dial_request, rejection=rejection))
        raise


def audit_rejection(conn: sa.Connection, dial_request: DialRequest, rejection: DialRejection) -> None:
    """Record a rejected request with the reason."""
    detail = printable(_error_text(rejection.error), MAX_DETAIL)
    dial_audit.log_attempt(outbound_audit.record(conn, dial_request, rejection.verdict, detail=detail))


def _error_text(error: TrunklineError) -> str:
    if isinstance(error, Invalid):
        return "; ".join(f"{each.field}: {each.message}" for each in error.problems)
    return error.message


def audit_malformed(request: web.Request, body: bytes, error: Invalid) -> Callable[[sa.Connection], None] | None:
    """Returns the write to the audit log for a body that failed validation; None if the body has no destination. Takes
    milliseconds for a large body."""
    try:
        fields = from_json(body)
    except ValueError:
        return None
    to = fields.get("to") if isinstance(fields, dict) else None
    if to is None or to == "":
        return None
    to = to if isinstance(to, str) else to_json(to).decode()

    def write(conn: sa.Connection) -> None:
        owner = request[PRINCIPAL].organization_id
        number_id = _uuid_or_none(fields.get("phoneNumberId"))
        number = None if number_id is None else phone_numbers.get(conn, owner, number_id)
        dial_request = new_dial_request(request, owner, to, number_id, number)
        audit_rejection(conn, dial_request, DialRejection("refused_request", error))

    return write


def _uuid_or_none(value: object) -> str | None:
    return value.lower() if isinstance(value, str) and UUID_PATTERN.fullmatch(value) else None
