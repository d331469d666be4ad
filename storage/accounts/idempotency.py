"""Answers to requests that carried an idempotency key, kept for a repetition of the request. They may show what is
stored encrypted elsewhere (the headers of tools), so they are `Secrets.encrypt` tokens too."""

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
"""Of the making of what it shows: they share a transaction."""
_t = tables.idempotent_answers


@dataclass(frozen=True)
class IdempotencyScope:
    """What makes two requests the same one."""

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
    """The answer to the first such request of the last 24 hours."""
    row = conn.execute(_FIND, {**_parameters(scope), "since": now - LIFETIME}).one_or_none()
    return None if row is None else StoredResponse(row.status, secrets.decrypt(row.body.decode()).encode())


def store(
    conn: sa.Connection, secrets: Secrets, scope: IdempotencyScope, answer: StoredResponse, at: datetime | None = None
) -> None:
    """Store the answer, in the place of one that has run out. An integrity error when another one still holds."""
    at = at or utc_now()
    conn.execute(_FORGET, {**_parameters(scope), "until": at - LIFETIME})
    body = secrets.encrypt(answer.body.decode()).encode()
    conn.execute(sa.insert(_t), {**asdict(scope), "status": answer.status, "body": body, "created_at": at})


def find_or_store(
    conn: sa.Connection, secrets: Secrets, scope: IdempotencyScope, answer: StoredResponse
) -> StoredResponse:
    """The answer that holds; when there is none yet, this very one, which is kept from now on."""
    now = utc_now()
    first = find(conn, secrets, scope, now)
    if first is None:
        store(conn, secrets, scope, answer, now)
    return first or answer


def replace_responses_about(
    conn: sa.Connection, secrets: Secrets, route: tuple[str, str], made: tuple[str, datetime], answer: StoredResponse
) -> None:
    """Whoever repeats the request that has made something gets this answer instead of the one that shows it: it is
    gone, and is not made once more. `route`: the organization and the path of the POST; `made`: id and time of what it
    made."""
    organization_id, path = route
    made_id, at = made
    near = sa.select(_t.c.key, _t.c.body).where(
        _t.c.created_at.between(at - _STORED_WITHIN, at + _STORED_WITHIN),
        sa.func.coalesce(_t.c.organization_id, "") == organization_id,  # the index of times is the one to use
        _t.c.method == "POST",
        _t.c.path == path,
    )
    for key, body in conn.execute(near).all():
        if made_id in secrets.decrypt(body.decode()):
            scope = _parameters(IdempotencyScope(organization_id, "POST", path, key))
            hidden = secrets.encrypt(answer.body.decode()).encode()
            conn.execute(_REPLACE, {**scope, "new_status": answer.status, "new_body": hidden})


def purge(conn: sa.Connection, now: datetime) -> int:
    """Forget what has run out; how many they were."""
    return conn.execute(sa.delete(_t).where(_t.c.created_at <= now - LIFETIME)).rowcount


def _parameters(scope: IdempotencyScope) -> dict[str, str]:
    return {f"the_{name}": value for name, value in asdict(scope).items()}
