"""Routes as data: validation, serialization and the OpenAPI document are derived from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar

import sqlalchemy as sa
from aiohttp import web
from pydantic import BaseModel

from api.schemas.base import Query
from api.schemas.bounds import MIB
from api.services import Services
from config.errors import Invalid
from storage.users.users import Role

OBJECT_TYPES: Final = {
    "agents": "agent",
    "phone-numbers": "number",
    "tools": "tool",
    "knowledge": "document",
    "calls": "call",
    "api-keys": "key",
    "organization": "organization",
    "users": "user",
    "webhook-endpoints": "webhook",
    "background-sounds": "sound",
    "models": "model",
    "remote-models": "remote-model",
}
"""What the audit log calls the resources, by the first segment of their path."""
B = TypeVar("B")
Q = TypeVar("Q")


@dataclass(frozen=True)
class DataResponse:
    """`{data: <view>}`; the handler returns the view, or a response of one of the `other_media_types`."""

    view: type[BaseModel]
    other_media_types: tuple[str, ...] = ()


@dataclass(frozen=True)
class PageResponse:
    """`{data: [<view>], pagination}`; the handler returns `ViewPage`."""

    view: type[BaseModel]


@dataclass(frozen=True)
class ListResponse:
    """`{data: [<view>]}`, a list without pages; the handler returns the views."""

    view: type[BaseModel]


@dataclass(frozen=True)
class ResultsResponse:
    """`{results: [<view>]}`, without the envelope of resources; the handler returns the views."""

    view: type[BaseModel]


@dataclass(frozen=True)
class DeletedResponse:
    """`{data: {id, deleted: true}}`; the handler returns None."""


@dataclass(frozen=True)
class FileResponse:
    """A body of a media type, with or without range requests; the handler returns the response."""

    media_type: str
    ranges: bool = True


@dataclass(frozen=True)
class JsonResponse:
    """JSON without an envelope; the handler returns its bytes."""


ResponseKind = (
    DataResponse | PageResponse | ListResponse | ResultsResponse | DeletedResponse | FileResponse | JsonResponse
)


@dataclass(frozen=True)
class ViewPage:
    """A page of views, some perhaps serialized already, and the length of the complete list. Items are consumed only as
    far as they fit into the response, so that an iterator reads no others."""

    items: Iterable[BaseModel | bytes]
    total: int


def as_json(view: BaseModel) -> bytes:
    """Returns the serialized view."""
    return view.__pydantic_serializer__.to_json(view, by_alias=True)


class NoQuery(Query):
    """No parameters."""


@dataclass(frozen=True)
class CheckedRequest(Generic[B, Q]):
    """A validated request. `http` is None for an operation that a command runs. `item` is the id in the path, "" for a
    route without one; `number` the number after it, 0 without one; `organization_id` is None on open routes and for
    signed links."""

    services: Services
    http: web.Request | None
    organization_id: str | None
    item: str
    number: int
    body: B
    query: Q

    @property
    def request(self) -> web.Request:
        """The HTTP request."""
        if self.http is None:
            raise RuntimeError("a command has no HTTP request")
        return self.http

    @property
    def owner(self) -> str:
        """The organization of the API key, or of the command."""
        if self.organization_id is None:
            raise RuntimeError("a request without an API key has no owner")
        return self.organization_id


@dataclass(frozen=True)
class RequestContext(CheckedRequest[B, Q]):
    """A validated request inside its transaction `conn`, on the database's thread. `prepared` is the result of the
    route's `prepare`. Functions in `after_commit` are called on the event loop after the commit; those in
    `after_rejection` run in a transaction of their own if the handler has raised."""

    conn: sa.Connection
    prepared: Any = None
    after_commit: list[Callable[[], None]] = field(default_factory=list)
    after_rejection: list[Callable[[sa.Connection], None]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Route:
    """One operation. `path` is below `/v1`; `item` is the noun of the id in the path, as in `Agent not found`;
    `numbered` that of the number `{n}` after it. `page_path` is a second path of the operation, below `/api`, for pages
    of the dashboard. `role` is the least role of a user who may use it; an API key has the rights of an owner. `action`
    is what the audit log calls a write, by default `audit_action`; `object_name` names its object there by the result,
    if no table does. `access` is what opens the route: a key or a session, these or a signed link, or anyone. The
    handler runs in one transaction on the database's thread: a read sees one moment, a write is all or nothing.
    `prepare` runs before it on the event loop, for work that takes long or happens outside of the database; `undo`
    reverts that if the transaction fails. `audit_malformed` returns the write to the audit log for a body that the
    model rejects, or None. `read_only` marks a POST that changes nothing. `ends_with_client` marks one that takes long
    and is stopped when its client disconnects; it has no timeout but its own. Without `has_deadline` the request may
    take as long as it takes. `uses_disk_reserve` marks a route that calls need: it works when only the reserve of the
    disk is free. `max_body` is in bytes. `upload` is the media type of a body that `prepare` reads from the request as
    it comes. `quotas` are names of `storage.accounts.quotas`; `prepare` does not run if one of them, or of
    `quotas_before_prepare` if that is set, is used up. `example` is a body that the route accepts. `errors` are the
    statuses that do not follow from the other fields."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    name: str
    role: Role
    tag: str
    summary: str
    handler: Callable[[RequestContext[Any, Any]], Any]
    response: ResponseKind
    body: type[BaseModel] | None = None
    query: type[Query] = NoQuery
    status: int = 200
    item: str | None = None
    action: str | None = None
    object_name: Callable[[RequestContext[Any, Any], Any], str | None] | None = None
    numbered: str | None = None
    page_path: str | None = None
    prepare: Callable[[CheckedRequest[Any, Any]], Awaitable[Any]] | None = None
    undo: Callable[[CheckedRequest[Any, Any], Any], Awaitable[None]] | None = None
    audit_malformed: Callable[[web.Request, bytes, Invalid], Callable[[sa.Connection], None] | None] | None = None
    access: Literal["key", "link", "open"] = "key"
    read_only: bool = False
    ends_with_client: bool = False
    uses_disk_reserve: bool = False
    max_body: int = MIB
    upload: str | None = None
    has_deadline: bool = True
    quotas: tuple[str, ...] = ()
    quotas_before_prepare: tuple[str, ...] | None = None
    errors: tuple[int, ...] = ()
    description: str | None = None
    example: Mapping[str, Any] | None = None

    @property
    def full_paths(self) -> tuple[str, ...]:
        """Every path of the operation."""
        return (f"/v1{self.path}", *(() if self.page_path is None else (self.page_path,)))

    @property
    def quotas_of_prepare(self) -> tuple[str, ...]:
        """The quotas that `prepare` needs."""
        return self.quotas if self.quotas_before_prepare is None else self.quotas_before_prepare

    @property
    def writes(self) -> bool:
        """True if the handler runs in a write transaction."""
        return self.method != "GET" and not self.read_only

    @property
    def object_type(self) -> str:
        """What the audit log calls the resource below the path's first segment. Raises `KeyError` for an unknown one,
        which has to be added to `OBJECT_TYPES`."""
        return OBJECT_TYPES[self.path.split("/")[1]]

    @property
    def audit_action(self) -> str:
        """What the audit log calls a write: the type of its object, and what is done with it."""
        if self.action is not None:
            return self.action
        last = self.path.rpartition("/")[2]
        made_by_post = "create" if self.path.count("/") == 1 else last
        verb = {"PATCH": "update", "PUT": "update", "DELETE": "delete"}.get(self.method, made_by_post)
        return f"{self.object_type}.{verb}"

    @property
    def leaves_disk_reserve(self) -> bool:
        """True if the route must not store anything, not even a response for idempotency, when only the reserve of the
        disk is free. A DELETE frees space."""
        return self.method not in ("GET", "DELETE") and not self.uses_disk_reserve
