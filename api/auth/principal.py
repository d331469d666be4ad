"""Who sends a request: a program with an API key, or a user with the cookie of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiohttp import web

from config.errors import FieldProblem, NotGranted
from storage.accounts.api_keys import ApiKey
from storage.accounts.audit_log import Actor
from storage.users.sessions import Session
from storage.users.users import Role, has_role


@dataclass(frozen=True)
class Principal:
    """A key or a user. `organization_id` is its own, or the one that an operator has chosen; `name` is the user's, or
    the key's, or the prefix of a key without one. Either `key` or `session` is set."""

    organization_id: str
    role: Role
    name: str
    key: ApiKey | None = None
    session: Session | None = None

    @classmethod
    def of_key(cls, key: ApiKey) -> Principal:
        """A key has an owner's rights."""
        return cls(key.organization_id, "owner", key.name or key.prefix, key=key)

    @classmethod
    def of_session(cls, session: Session, organization_id: str) -> Principal:
        """A user who works in this organization."""
        return cls(organization_id, session.user.role, session.user.name, session=session)

    @property
    def actor(self) -> Actor:
        """The key or the user in the audit log."""
        if self.session is not None:
            return self.session.user.actor
        return Actor("api_key", self.name, None if self.key is None else self.key.id)

    @property
    def sees_sip_messages(self) -> bool:
        """True if it may read SIP messages in full: of users only operators."""
        return self.key is not None or self.role == "operator"

    def require_role(self, role: Role) -> None:
        """Raises `NotGranted`, which names the needed role, unless the principal has its rights."""
        if not has_role(self.role, role):
            own = "An API key has an owner's rights" if self.session is None else f"Yours is {self.role}"
            raise NotGranted([FieldProblem("role", f"{own}: this needs {role}")], f"This needs the role {role}")


PRINCIPAL: Final = web.RequestKey("principal", Principal)
"""Set on every request that needs a key or a session, and with a key on all others."""
SESSION: Final = web.RequestKey("session", Session)
"""Set with `PRINCIPAL` on requests with a session's cookie, and alone on those to `/api/session`."""
