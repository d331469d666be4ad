"""Bodies of signing in and of setting a password, and what the dashboard is told of its session."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.schemas.base import Body, IdView, View

MAX_TEXT = 1000


class SignInBody(Body):
    """POST /api/session"""

    username: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
    password: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class PasswordBody(Body):
    """POST /api/password"""

    token: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
    password: Annotated[str, Field(max_length=MAX_TEXT)]


class OrganizationName(View):
    """An organization to choose."""

    id: IdView
    name: str


class SessionView(View):
    """`organization`: where the user works, None if there is none yet. `organizations`: those that an operator can
    choose, oldest first; None for other users."""

    user: str
    role: str
    organization: OrganizationName | None
    organizations: tuple[OrganizationName, ...] | None
    csrf_token: str
