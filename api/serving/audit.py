"""Entries of the audit log about the writes of routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import BaseModel

from api.resources.accounts.author import actor_of
from api.routes import ROUTES
from api.routing.route import RequestContext, Route
from config.errors import NotFound
from storage.accounts import audit_log
from storage.accounts.audit_log import AuditObject

_READ_ROUTES: Final = {route.path: route for route in ROUTES if route.method == "GET"}
_UNKNOWN: Final = object()
"""Stands for the value of a field that no response shows, such as a secret."""


class WriteAudit:
    """The entry of one write, inside its transaction. Begin it before the handler, which may delete the object."""

    def __init__(self, route: Route, context: RequestContext[Any, Any]) -> None:
        self._route = route
        self._context = context
        deletes, updates = route.method == "DELETE", route.method == "PATCH"
        self._deleted = self._named(context.item) if deletes else None
        self._before = self._view() if updates else None

    def record(self, result: Any) -> None:
        """Store the entry, after the handler."""
        context, route = self._context, self._route
        audit_log.record(
            context.conn,
            None if route.role == "operator" else context.owner,
            actor=actor_of(context),
            action=route.audit_action,
            about=self._about(result),
            fields=self._changed_fields(result),
            client=None if context.http is None else context.http.remote,
            detail=f"version {context.number}" if context.number else None,
        )

    def _about(self, result: Any) -> AuditObject:
        about = self._deleted or self._named(self._object_id(result))
        name_of = self._route.object_name
        return about if name_of is None else replace(about, name=name_of(self._context, result))

    def _named(self, object_id: str | None) -> AuditObject:
        return audit_log.object_with_name(self._context.conn, self._route.object_type, object_id)

    def _object_id(self, result: Any) -> str | None:
        """The id in the path, else that of what was made; a test call is part of its response."""
        if self._context.item:
            return self._context.item
        if self._route.object_type == "organization":
            return self._context.owner
        made = getattr(getattr(result, "call", result), "id", None)
        return None if made is None else str(made)

    def _view(self) -> BaseModel | None:
        """The object as it is before a change, None if there is none."""
        read = _READ_ROUTES[self._route.path]
        try:
            view = read.handler(replace(self._context, body=None))
        except NotFound:
            return None
        return view if isinstance(view, BaseModel) else None

    def _changed_fields(self, after: Any) -> Sequence[str]:
        """The fields of a PATCH whose value differs now, as the API spells them; those that no response shows count as
        changed when they are given."""
        body = self._context.body
        if self._before is None or not isinstance(body, BaseModel):
            return ()
        return [
            field.alias or name
            for name, field in type(body).model_fields.items()
            if name in body.model_fields_set and self._differs(name, after)
        ]

    def _differs(self, name: str, after: Any) -> bool:
        before, now = getattr(self._before, name, _UNKNOWN), getattr(after, name, _UNKNOWN)
        return before is _UNKNOWN or before != now
