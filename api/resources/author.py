"""The author of a change."""

from __future__ import annotations

from typing import Any

from api.auth.authentication import API_KEY
from api.routing.route import CheckedRequest
from config.operating_system_user import operating_system_user


def author_of(request: CheckedRequest[Any, Any]) -> str:
    """The name of the request's API key, or its prefix if it has no name; of a command, the user who runs it."""
    if request.http is None:
        return operating_system_user()
    key = request.http[API_KEY]
    return key.name or key.prefix
