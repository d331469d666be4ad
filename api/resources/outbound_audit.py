"""Audits POST /calls: every request for a call is recorded, also a rejected one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import sqlalchemy as sa
from aiohttp import web
from pydantic_core import from_json, to_json

from api.auth.authentication import API_KEY
from api.routing.route import RequestContext
from api.schemas.base import UUID_PATTERN
from calls.outbound import audit_log
from calls.outbound.permissions import DialRejection
from config.errors import Invalid, TrunklineError
from sipcore.messages.headers import printable
from storage.calls import outbound_audit
from storage.calls.outbound_audit import DialRequest
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber

MAX_DESTINATION: Final = 64
MAX_DETAIL: Final = 200
"""Characters of the destination and of the reason that are stored."""


def dial_request(request: web.Request, to: str, number_id: str | None, number: PhoneNumber | None) -> DialRequest:
    """The call that the API key asks for. `number` is the phone number of that id in the key's organization."""
    key = request[API_KEY]
    return DialRequest(
        organization_id=key.organization_id,
        phone_number_id=number_id,
        destination=printable(to, MAX_DESTINATION),
        client=request.remote,
        number=None if number is None else number.number,
        api_key_id=key.id,
        api_key_prefix=key.prefix,
    )


@contextmanager
def audited(context: RequestContext[Any, Any], wish: DialRequest) -> Iterator[None]:
    """An error in this block rejects the request, and is recorded in the audit log."""
    try:
        yield
    except TrunklineError as error:
        context.after_rejection.append(
            partial(audit_rejection, wish=wish, refusal=DialRejection("refused_request", error))
        )
        raise


def audit_rejection(conn: sa.Connection, wish: DialRequest, refusal: DialRejection) -> None:
    """Record that the request was rejected, and why."""
    detail = printable(_error_text(refusal.error), MAX_DETAIL)
    audit_log.log_attempt(outbound_audit.record(conn, wish, refusal.verdict, detail=detail))


def _error_text(error: TrunklineError) -> str:
    if isinstance(error, Invalid):
        return "; ".join(f"{each.field}: {each.message}" for each in error.problems)
    return error.message


def audit_malformed(request: web.Request, body: bytes, error: Invalid) -> Callable[[sa.Connection], None] | None:
    """Returns what is to be recorded of a body that failed validation; None when it names no destination. Takes
    milliseconds for a large body."""
    try:
        given = from_json(body)
    except ValueError:
        return None
    to = given.get("to") if isinstance(given, dict) else None
    if to is None or to == "":
        return None
    to = to if isinstance(to, str) else to_json(to).decode()

    def note(conn: sa.Connection) -> None:
        number_id = _uuid_or_none(given.get("phoneNumberId"))
        number = None if number_id is None else phone_numbers.get(conn, request[API_KEY].organization_id, number_id)
        audit_rejection(conn, dial_request(request, to, number_id, number), DialRejection("refused_request", error))

    return note


def _uuid_or_none(given: object) -> str | None:
    return given.lower() if isinstance(given, str) and UUID_PATTERN.fullmatch(given) else None
