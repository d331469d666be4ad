"""Models on other machines, added by the operator. Keys are `Secrets.encrypt` tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import Conflict, NotFound
from storage import tables
from storage.tables.row_mapping import RowMapping

RemoteKind = Literal["llm", "stt", "tts", "embedding"]
RemoteModelVersion = tuple[str, datetime]
"""The name of a model, and when it was added."""


@dataclass(frozen=True, kw_only=True)
class StoredRemoteModel:
    """`model` is its name on the remote server. `voices` are pairs of a name and a BCP 47 tag or None; `limits` are
    seconds by name, where they differ from the defaults; `extra` is added to the body of each request."""

    name: str
    kind: RemoteKind
    base_url: str
    model: str
    key_encrypted: str | None = field(default=None, repr=False)
    context_length: int | None = None
    voices: list[list[str | None]] = field(default_factory=list)
    limits: dict[str, float] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    created_at: datetime = field(default_factory=utc_now)

    @property
    def version(self) -> RemoteModelVersion:
        """Tells it from another one that had its name before."""
        return self.name, self.created_at


_MODEL: Final = RowMapping(StoredRemoteModel, tables.remote_models)
_t = tables.remote_models


def add(conn: sa.Connection, model: StoredRemoteModel) -> None:
    """Store a new model; `Conflict` when the name is taken."""
    if conn.execute(sa.select(_t.c.name).where(_t.c.name == model.name)).first() is not None:
        raise Conflict(f"there is a remote model {model.name!r} already: remove it first")
    conn.execute(sa.insert(_t).values(**asdict(model)))


def all_of(conn: sa.Connection) -> list[StoredRemoteModel]:
    """All models, in the order in which they were added."""
    query = sa.select(*_MODEL.columns).order_by(_t.c.created_at, _t.c.name)
    return [_MODEL.build(row) for row in conn.execute(query)]


def remove(conn: sa.Connection, name: str) -> None:
    """Delete a model; `NotFound` when there is none."""
    if conn.execute(sa.delete(_t).where(_t.c.name == name)).rowcount == 0:
        raise NotFound(f"there is no remote model {name!r}")
