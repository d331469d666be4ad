"""Entries of the audit log in responses, and the parameters of their list."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from api.schemas.base import IdView, Instant, Paging, QueryId, QueryInstant, View
from storage.accounts.audit_log import ActorType, AuditEntry, AuditFilter

MAX_TEXT = 255
"""Characters of a text that is compared."""
ObjectType = Literal[
    "agent",
    "number",
    "tool",
    "document",
    "call",
    "key",
    "organization",
    "user",
    "webhook",
    "sound",
    "model",
    "remote-model",
]
Compared = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class AuditQuery(Paging):
    """Query parameters of the audit log."""

    scope: Literal["organization", "installation"] = Field(
        "organization",
        description="`installation`: the entries of all organizations, and those of none; only for operators",
    )
    actor: Compared | None = Field(None, description="Entries of the actor with exactly this name, or this id")
    action: Compared | None = Field(None, description="Entries of this action, such as agent.update")
    object_type: ObjectType | None = Field(None, description="Entries about objects of this type")
    object_id: QueryId | None = Field(None, description="Entries about this object")
    from_: QueryInstant | None = Field(None, alias="from", description="Made at this time or later (ISO 8601)")
    to: QueryInstant | None = Field(None, description="Made at this time or earlier (ISO 8601)")

    def filter(self) -> AuditFilter:
        """Returns the filter of the database query."""
        return AuditFilter(
            actor=self.actor,
            action=self.action,
            object_type=self.object_type,
            object_id=None if self.object_id is None else str(self.object_id),
            since=self.from_,
            until=self.to,
        )


class AuditActor(View):
    """Who made a change."""

    type: ActorType | None = Field(
        description="`user` of the organization, `operator`, `api_key`, or `command`: someone at the command line; "
        "`unknown` did not sign in; null in entries of earlier versions"
    )
    id: IdView | None = Field(description="Id of the user or the key, which may be deleted; null for all others")
    name: str = Field(
        description="Name of the user, of the key (its prefix if it has no name) or, for a command, of the operating "
        "system's user; empty if it is unknown"
    )


class AuditedObject(View):
    """What a change is about."""

    type: str = Field(description="Type of the object, such as agent", json_schema_extra={"example": "agent"})
    id: IdView | None = Field(description="Id of the object, which may be deleted")
    name: str | None = Field(
        description="Its name at that time; null for what has none, such as calls",
        json_schema_extra={"example": "Reception"},
    )


class AuditEntryView(View):
    """A change, or a sign-in. Entries have the names of changed fields, and never their values."""

    id: IdView
    organization_id: IdView | None = Field(description="Null for what belongs to the whole installation")
    created_at: Instant = Field(description="When the change was made, UTC")
    actor: AuditActor = Field(description="Who made the change")
    action: str = Field(description="What was done, mostly the object's type and a verb")
    object: AuditedObject | None = Field(description="Null if no object is meant")
    fields: list[str] = Field(description="Names of the fields that an update changed, as in the request")
    client_address: str | None = Field(description="Address of the HTTP client; null for a command")
    detail: str | None = Field(description="More about the object, such as the version of an agent; null if nothing")

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        """Returns the view of a stored entry."""
        about = None
        if entry.object_type is not None:
            about = AuditedObject(type=entry.object_type, id=entry.object_id, name=entry.object_name)
        return cls(
            id=entry.id,
            organization_id=entry.organization_id,
            created_at=entry.created_at,
            actor=AuditActor(type=entry.actor_type, id=entry.actor_id, name=entry.actor),
            action=entry.action,
            object=about,
            fields=entry.fields,
            client_address=entry.client,
            detail=entry.detail,
        )
