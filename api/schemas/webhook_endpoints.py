"""Webhook endpoints in bodies and responses."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from api.schemas.addresses import WebhookAddress
from api.schemas.base import Body, Description, IdView, Instant, View, without_defaults
from api.schemas.bounds import MAX_SECRET
from api.schemas.webhook_events import WEBHOOK_EVENTS, WebhookEvents
from config.secrets import Secrets
from storage.tables.agent_fields import WebhookEvent
from storage.webhooks.endpoints import WebhookEndpoint as StoredEndpoint


class WebhookEndpointSettings(Body):
    """Fields of new and of changed endpoints."""

    secret: Annotated[str, Field(min_length=1, max_length=MAX_SECRET)] | None = Field(
        None, description="Secret that signs the events; never returned", json_schema_extra={"writeOnly": True}
    )
    events: WebhookEvents = Field(["call.completed"], description=WEBHOOK_EVENTS)
    description: Description | None = None
    enabled: bool = Field(True, description="False: events that happen are not sent to it")

    def to_store(self, secrets: Secrets, *, only_given: bool) -> dict[str, Any]:
        """Returns the values under the names of `WebhookEndpointFields`, all or only those in the body."""
        values = self.model_dump(exclude_unset=only_given)
        if "secret" in values:
            secret = values.pop("secret")
            values["secret_encrypted"] = None if secret is None else secrets.encrypt(secret)
        return values


class WebhookEndpointCreate(WebhookEndpointSettings):
    """A new endpoint; only the URL is required."""

    url: WebhookAddress = Field(description="Receiver of the events; https only")


class WebhookEndpointUpdate(WebhookEndpointSettings):
    """Changes to an endpoint: an absent field stays as it is, null clears a nullable field."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    url: WebhookAddress = Field("", description="Receiver of the events; https only")


class WebhookEndpoint(View):
    """An address that gets the events of all calls of the organization."""

    id: IdView
    url: str
    secret_set: bool = Field(description="True if there is a secret")
    events: list[WebhookEvent]
    description: str | None
    enabled: bool
    created_at: Instant
    updated_at: Instant

    @classmethod
    def of(cls, stored: StoredEndpoint) -> WebhookEndpoint:
        """Returns the view of a stored endpoint."""
        return cls.model_validate({**stored.__dict__, "secret_set": stored.secret_encrypted is not None})
