"""Limits of sign-in for each address and each user, and the user's own browsers."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet

from api.auth.shared_rate_limit import SharedRateLimiter
from api.auth.sign_in_limit import PER_ADDRESS, PER_USER, SignInLimiter, browser_token
from config.errors import LimitExceeded
from config.secrets import Secrets
from storage.database.database import Database

KEYS = Secrets([Fernet.generate_key()])
NOW_S = 1_000_000.0


def _limiter() -> SignInLimiter:
    """Limits of a single server, which read no database."""
    return SignInLimiter(KEYS, SharedRateLimiter(Database("sqlite+aiosqlite:///none.db"), KEYS, is_shared=False))


async def _attempts(
    limiter: SignInLimiter, user: str, address: str, token: str | None = None, now_s: float = NOW_S
) -> int:
    """Returns how many attempts are taken until one is refused."""
    taken = 0
    try:
        while taken < 1000:
            await limiter.charge(user, address, token, now_s)
            taken += 1
    except LimitExceeded as error:
        assert error.retry_after_s is not None
        assert 1 <= error.retry_after_s <= 60
    return taken


async def test_a_user_has_one_limit_for_all_unknown_browsers() -> None:
    limiter = _limiter()
    assert await _attempts(limiter, "owner", "192.0.2.1") == PER_USER
    assert await _attempts(limiter, "owner", "192.0.2.2") == 0
    assert await _attempts(limiter, "other", "192.0.2.2") == PER_USER


async def test_an_address_has_one_limit_for_all_users() -> None:
    limiter = _limiter()
    for number in range(PER_ADDRESS):
        await limiter.charge(f"user{number}", "192.0.2.1", None, NOW_S)
    assert await _attempts(limiter, "another", "192.0.2.1") == 0
    assert await _attempts(limiter, "another", "192.0.2.2") == PER_USER


async def test_guesses_of_others_do_not_lock_the_user_out_of_known_browsers() -> None:
    limiter = _limiter()
    token = browser_token(KEYS, "owner")
    assert await _attempts(limiter, "owner", "192.0.2.1") == PER_USER
    assert await _attempts(limiter, "owner", "192.0.2.9", token) == PER_USER
    assert await _attempts(limiter, "owner", "192.0.2.10", token) == 0  # a stolen cookie has a limit, too


async def test_a_minute_later_unknown_browsers_can_sign_in_again() -> None:
    limiter = _limiter()
    assert await _attempts(limiter, "owner", "192.0.2.1") == PER_USER
    assert await _attempts(limiter, "owner", "192.0.2.2", now_s=NOW_S + 59) == 0
    assert await _attempts(limiter, "owner", "192.0.2.2", now_s=NOW_S + 61) == PER_USER


@pytest.mark.parametrize("change", ["other user", "other keys", "nonce", "cut", "text"])
async def test_a_token_counts_for_its_user_and_installation_alone(change: str) -> None:
    token = browser_token(KEYS, "owner")
    given = {
        "other user": browser_token(KEYS, "other"),
        "other keys": browser_token(Secrets([Fernet.generate_key()]), "owner"),
        "nonce": ("1" if token[0] == "0" else "0") + token[1:],
        "cut": token[:-1],
        "text": "x",
    }[change]
    limiter = _limiter()
    assert await _attempts(limiter, "owner", "192.0.2.1") == PER_USER
    assert await _attempts(limiter, "owner", "192.0.2.2", given) == 0
    assert await _attempts(limiter, "owner", "192.0.2.3", token) == PER_USER
