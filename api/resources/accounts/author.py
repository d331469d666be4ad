"""The author of a change."""

from __future__ import annotations

from typing import Any

from api.auth.principal import PRINCIPAL
from api.routing.route import CheckedRequest
from config.operating_system_user import operating_system_user


def author_of(request: CheckedRequest[Any, Any]) -> str:
    """The name of the user, or of the request's API key, or its prefix if it has no name; of a command, the user of the
    operating system who runs it."""
    if request.http is None:
        return operating_system_user()
    return request.http[PRINCIPAL].name
