"""The actor and the author of a change."""

from __future__ import annotations

from typing import Any

from api.auth.principal import PRINCIPAL
from api.routing.route import CheckedRequest
from config.operating_system_user import operating_system_user
from storage.accounts.audit_log import Actor


def actor_of(request: CheckedRequest[Any, Any]) -> Actor:
    """The API key or the user of a request; of a command, the user of the operating system who runs it."""
    if request.http is None:
        return Actor("command", operating_system_user())
    return request.http[PRINCIPAL].actor


def author_of(request: CheckedRequest[Any, Any]) -> str:
    """The name of the actor; of an API key without a name, its prefix."""
    return actor_of(request).name
