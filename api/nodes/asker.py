"""Who asks for what a node passes on: the principal that the first node has authenticated, and the client's address."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter

from api.auth.principal import Principal


@dataclass(frozen=True)
class Asker:
    """`node`: the one that passes the request on. `principal` None: a WebSocket that a ticket opens."""

    node: str
    client: str
    principal: Principal | None

    def encoded(self) -> str:
        """Returns it as the value of a header; a user's password hash stays behind."""
        return base64.b64encode(_ASKER.dump_json(replace(self, principal=_without_hash(self.principal)))).decode()

    @classmethod
    def decoded(cls, text: str) -> Asker:
        """Returns the asker of a header whose signature is valid."""
        return _ASKER.validate_json(base64.b64decode(text))


_ASKER: Final = TypeAdapter(Asker)


def _without_hash(principal: Principal | None) -> Principal | None:
    if principal is None or principal.session is None:
        return principal
    user = replace(principal.session.user, password_hash=None)
    return replace(principal, session=replace(principal.session, user=user))
