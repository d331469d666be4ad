"""Limits of sign-in: for each address, and for each user. A browser in which the user has signed in before has a limit
of its own, so that others who guess a user's password cannot lock the user out there."""

from __future__ import annotations

import secrets
from typing import Final

from api.auth.shared_rate_limit import SharedRateLimiter
from config.errors import LimitExceeded
from config.secrets import Secrets

PER_ADDRESS: Final = 20
"""Attempts a minute from one address, for any users."""
PER_USER: Final = 10
"""Attempts a minute for one user: in each known browser, and in all others together."""
_TOKEN_LENGTH: Final = 16 * 2 + 1 + 64


def browser_token(keys: Secrets, user_name: str) -> str:
    """Returns the text of a cookie which tells that the user has signed in with this browser."""
    nonce = secrets.token_hex(16)
    return f"{nonce}.{keys.sign(_signed(user_name, nonce))}"


def _signed(user_name: str, nonce: str) -> str:
    return f"browser {nonce} {user_name}"


class SignInLimiter:
    """The attempts of the last minute. An unknown user has the same limit as a known one. Time is an argument, in
    seconds since 1970."""

    def __init__(self, keys: Secrets, limiter: SharedRateLimiter) -> None:
        self._keys = keys
        self._limiter = limiter

    async def charge(self, user_name: str, address: str, token: str | None, now_s: float) -> None:
        """Count an attempt before its password is checked; `token` is the browser's. Raises `LimitExceeded`."""
        browser = self._known_browser(user_name, token)
        client = f"user {user_name}" if browser is None else f"browser {browser} {user_name}"
        for each, limit in ((f"address {address}", PER_ADDRESS), (client, PER_USER)):
            state = await self._limiter.charge(f"sign-in {each}", limit, now_s, in_advance=False)
            if not state.allowed:
                raise LimitExceeded("Too many attempts to sign in", state.retry_after_s(now_s))

    def _known_browser(self, user_name: str, token: str | None) -> str | None:
        """Returns the nonce of a token that was made for this user; None for any other text."""
        if token is None or len(token) != _TOKEN_LENGTH:
            return None
        nonce, _, signature = token.partition(".")
        return nonce if self._keys.verify(_signed(user_name, nonce), signature) else None
