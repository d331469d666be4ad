"""Stored responses of requests with an idempotency key. They may show what is stored encrypted elsewhere (the headers
of tools), so they are `Secrets.encrypt` tokens, too."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa

from config.clock import utc_now
from config.secrets import Secrets
from storage import tables

LIFETIME: Final = timedelta(hours=24)
_STORED_WITHIN: Final = timedelta(seconds=10)
"""Time between the creation of a resource and of the response that shows it; they share a transaction."""
_t = tables.idempotent_answers


@dataclass(frozen=True)
class IdempotencyScope:
    """What identifies a repeated request."""

    organization_id: str
    method: str
    path: str
    key: str


@dataclass(frozen=True)
class StoredResponse:
    """A response: HTTP status and the exact bytes of its JSON body."""

    status: int
    body: bytes


_SAME: Final = [_t.c[name] == sa.bindparam(f"the_{name}") for name in IdempotencyScope.__dataclass_fields__]
_FIND: Final = sa.select(_t.c.status, _t.c.body).where(*_SAME, _t.c.created_at > sa.bindparam("since"))
_REPLACE: Final = sa.update(_t).where(*_SAME).values(status=sa.bindparam("new_status"), body=sa.bindparam("new_body"))
_FORGET: Final = sa.delete(_t).where(*_SAME, _t.c.created_at <= sa.bindparam("until"))


def find(conn: sa.Connection, secrets: Secrets, scope: IdempotencyScope, now: datetime) -> StoredResponse | None:
    """Returns the response to the first request with this scope in the last 24 hours, None when there is none."""
    row = conn.execute(_FIND, {**_parameters(scope), "since": now - LIFETIME}).one_or_none()
    return None if row is None else StoredResponse(row.status, secrets.decrypt(row.body.decode()).encode())


def store(
    conn: sa.Connection, secrets: Secrets, scope: IdempotencyScope, answer: StoredResponse, at: datetime | None = None
) -> None:
    """Store the response, replacing an expired one. Raises SQLAlchemy's `IntegrityError` when another one is valid."""
    at = at or utc_now()
    conn.execute(_FORGET, {**_parameters(scope), "until": at - LIFETIME})
    body = secrets.encrypt(answer.body.decode()).encode()
    conn.execute(sa.insert(_t), {**asdict(scope), "status": answer.status, "body": body, "created_at": at})


def find_or_store(
    conn: sa.Connection, secrets: Secrets, scope: IdempotencyScope, answer: StoredResponse
) -> StoredResponse:
    """Returns the valid stored response; when there is none, stores this one and returns it."""
    now = utc_now()
    first = find(conn, secrets, scope, now)
    if first is None:
        store(conn, secrets, scope, answer, now)
    return first or answer


def replace_responses_showing(
    conn: sa.Connection, secrets: Secrets, route: tuple[str, str], made: tuple[str, datetime], answer: StoredResponse
) -> None:
    """Replace the stored response that shows a deleted resource, so that a repeated POST gets `answer` and creates
    nothing. `route`: the organization and the path of the POST; `made`: the id and the time of creation of the
    resource."""
    organization_id, path = route
    made_id, at = made
    near = sa.select(_t.c.key, _t.c.body).where(
        _t.c.created_at.between(at - _STORED_WITHIN, at + _STORED_WITHIN),
        sa.func.coalesce(_t.c.organization_id, "") == organization_id,  # so that the index of times is used
        _t.c.method == "POST",
        _t.c.path == path,
    )
    for key, body in conn.execute(near).all():
        if made_id in secrets.decrypt(body.decode()):
            scope = _parameters(IdempotencyScope(organization_id, "POST", path, key))
            body_token = secrets.encrypt(answer.body.decode()).encode()
            conn.execute(_REPLACE, {**scope, "new_status": answer.status, "new_body": body_token})


def delete_expired(conn: sa.Connection, now: datetime, *, limit: int) -> int:
    """Delete expired responses, the oldest first, at most `limit`; returns their number."""
    key = sa.tuple_(_t.c.organization_id, _t.c.method, _t.c.path, _t.c.key)
    expired = sa.select(*key.clauses).where(_t.c.created_at <= now - LIFETIME).order_by(_t.c.created_at).limit(limit)
    return conn.execute(sa.delete(_t).where(key.in_(expired))).rowcount


def _parameters(scope: IdempotencyScope) -> dict[str, str]:
    return {f"the_{name}": value for name, value in asdict(scope).items()}
