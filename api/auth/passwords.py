"""Hashing of passwords with argon2id (RFC 9106), off the event loop and with a bound on its memory."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError

from config.errors import FieldProblem, Invalid, Unavailable

T = TypeVar("T")
MIN_LENGTH: Final = 12
MAX_LENGTH: Final = 256
MEMORY_KIB: Final = 46 * 1024
"""Memory of one hash. With one pass and one lane, as the OWASP Password Storage Cheat Sheet advises."""
CONCURRENT: Final = 2
MAX_WAITING: Final = 20
"""Passwords that wait for a thread; more are refused at once."""
PASSWORD_OF_NOBODY: Final = "the password of nobody"
"""Its hash is what the password of an unknown user is compared with."""


class PasswordHashing:
    """Makes and checks hashes on `CONCURRENT` threads of its own."""

    def __init__(self, memory_kib: int = MEMORY_KIB) -> None:
        self._hasher = PasswordHasher(time_cost=1, memory_cost=memory_kib, parallelism=1)
        self._threads = ThreadPoolExecutor(CONCURRENT, thread_name_prefix="password")
        self._unfinished = 0
        self._hash_of_nobody: str | None = None

    async def make_hash(self, password: str) -> str:
        """Returns the hash to store. Raises `Invalid` if the password is too short or too long, and `Unavailable`."""
        check_length(password)
        return await self._on_thread(lambda: self._hasher.hash(_encoded(password)))

    async def matches(self, password_hash: str | None, password: str) -> bool:
        """True if it is the password of the hash. For an unknown user, without a hash, the work is the same. Raises
        `Unavailable` if too many passwords wait."""
        if len(password) > MAX_LENGTH:
            password = ""  # no stored password is longer or empty
        return await self._on_thread(lambda: self._matches(password_hash, password))

    def is_outdated(self, password_hash: str) -> bool:
        """True if a hash was made with other parameters than those of this version."""
        return self._hasher.check_needs_rehash(password_hash)

    def close(self) -> None:
        """Release the threads; waiting passwords are dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _matches(self, password_hash: str | None, password: str) -> bool:
        if self._hash_of_nobody is None:
            self._hash_of_nobody = self._hasher.hash(PASSWORD_OF_NOBODY)
        try:
            self._hasher.verify(password_hash or self._hash_of_nobody, _encoded(password))
        except (VerifyMismatchError, InvalidHashError):
            return False
        return password_hash is not None

    async def _on_thread(self, work: Callable[[], T]) -> T:
        if self._unfinished >= CONCURRENT + MAX_WAITING:
            raise Unavailable("Too many sign-ins at once: try again in a few seconds", 5)
        self._unfinished += 1
        loop = asyncio.get_running_loop()
        future = self._threads.submit(work)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._finish))
        return await asyncio.wrap_future(future)

    def _finish(self) -> None:
        self._unfinished -= 1


def _encoded(password: str) -> bytes:
    """The password in one form, whichever way the keyboard composes its characters (NIST SP 800-63B)."""
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")


def check_length(password: str) -> None:
    """Raises `Invalid` unless the password has `MIN_LENGTH` to `MAX_LENGTH` characters."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise Invalid([FieldProblem("password", f"Must have {MIN_LENGTH} to {MAX_LENGTH} characters")])
