"""Users in bodies and responses."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, Self

from pydantic import ConfigDict, Field

from api.schemas.base import Body, IdView, Instant, View, without_defaults
from api.schemas.patterns import UserName
from storage.users.users import State
from storage.users.users import User as StoredUser

OrganizationRole = Literal["owner", "editor", "viewer"]
"""The roles in an organization; operators have none of their own."""
NAME: Final = "Name to sign in with, unique on the server"
ROLE: Final = (
    "What the user may do: a viewer reads, an editor also changes agents, tools, knowledge and sounds, and handles "
    "calls, an owner may do everything in the organization"
)


class UserCreate(Body):
    """A new user."""

    name: UserName = Field(description=NAME)
    role: OrganizationRole = Field(description=ROLE)


class UserUpdate(Body):
    """Changes to a user: an absent field stays as it is."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    name: UserName = Field("", description=NAME)
    role: OrganizationRole = Field("viewer", description=f"{ROLE}. It holds from the next request on")
    enabled: bool = Field(
        True, description="false: the sessions and the link end, and the user cannot sign in; true: can again"
    )


class User(View):
    """A user of the organization."""

    id: IdView
    name: str = Field(description=NAME)
    role: OrganizationRole = Field(description=ROLE)
    state: State = Field(description="`invited`: has no password yet; `active`: can sign in; `disabled`: cannot")
    created_at: Instant
    last_sign_in_at: Instant | None = Field(description="When the user last signed in; null: never")


class InvitedUser(User):
    """A user with the link that sets the password, which no other response has."""

    link: str = Field(description="Address of the page where the user sets the password; it works once")
    link_expires_at: Instant = Field(description="When the link stops working")

    @classmethod
    def of(cls, user: StoredUser, link: str, expires_at: datetime) -> Self:
        """Returns the view of a stored user with a new link."""
        more = {"state": user.state, "link": link, "link_expires_at": expires_at}
        return cls.model_validate({**user.__dict__, **more})
