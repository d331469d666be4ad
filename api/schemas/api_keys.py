"""API keys in bodies and responses."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.schemas.base import Body, IdView, Instant, Name, View

MAX_REQUESTS_PER_MINUTE = 1_000_000


class ApiKeyCreate(Body):
    """A new key."""

    name: Name = Field(description="What the key is for, such as the program that uses it")
    requests_per_minute: Annotated[int, Field(ge=1, le=MAX_REQUESTS_PER_MINUTE)] | None = Field(
        None, description="Rate limit of the key; null: that of the server"
    )


class ApiKey(View):
    """A key that has not been revoked, without its text, which the server does not have."""

    id: IdView
    prefix: str = Field(description="The first part of the key's text, by which people and logs tell keys apart")
    name: str | None = Field(description="What the key is for; null if nobody said it")
    requests_per_minute: int | None = Field(description="Rate limit of the key; null: that of the server")
    created_at: Instant
    last_used_at: Instant | None = Field(description="When a request last had the key, to the minute; null: never")


class NewApiKey(ApiKey):
    """A key with its text, which no other response has."""

    key: str = Field(description="The key, to be sent as `Authorization: Bearer <key>`; it cannot be read again")
