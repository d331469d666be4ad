"""The client of a request that a node forwards to another one: its address, and the principal that the first node has
authenticated."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter

from api.auth.principal import Principal


@dataclass(frozen=True)
class ForwardedClient:
    """`node`: the one that forwards the request. `principal` None: a WebSocket that a ticket opens."""

    node: str
    address: str
    principal: Principal | None

    def encoded(self) -> str:
        """Returns it as the value of a header; a user's password hash stays behind."""
        return base64.b64encode(
            _FORWARDED_CLIENT.dump_json(replace(self, principal=_without_hash(self.principal)))
        ).decode()

    @classmethod
    def decoded(cls, text: str) -> ForwardedClient:
        """Returns the client of a header whose signature is valid."""
        return _FORWARDED_CLIENT.validate_json(base64.b64decode(text))


_FORWARDED_CLIENT: Final = TypeAdapter(ForwardedClient)


def _without_hash(principal: Principal | None) -> Principal | None:
    if principal is None or principal.session is None:
        return principal
    user = replace(principal.session.user, password_hash=None)
    return replace(principal, session=replace(principal.session, user=user))
