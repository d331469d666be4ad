"""Hashing of passwords: argon2id, off the event loop, with a bound on hashes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Event

import pytest
from argon2 import Parameters, PasswordHasher, extract_parameters

from api.auth import passwords
from api.auth.passwords import CONCURRENT, MAX_LENGTH, MAX_WAITING, MIN_LENGTH, PasswordHashing
from config.errors import Invalid, Unavailable

PASSWORD = "correct horse battery"


@pytest.fixture
def hashing() -> Iterator[PasswordHashing]:
    made = PasswordHashing(memory_kib=64)
    yield made
    made.close()


async def test_a_hash_is_argon2id_with_its_own_salt_and_matches_its_password_alone(hashing: PasswordHashing) -> None:
    made = await hashing.make_hash(PASSWORD)
    assert made.startswith("$argon2id$v=19$m=64,t=1,p=1$")
    assert await hashing.make_hash(PASSWORD) != made
    assert await hashing.matches(made, PASSWORD)
    for wrong in ("", PASSWORD + " ", PASSWORD.upper(), "x" * 10_000, "\ud800"):
        assert not await hashing.matches(made, wrong)


async def test_a_password_matches_however_the_keyboard_composes_it(hashing: PasswordHashing) -> None:
    made = await hashing.make_hash("u\u0308ber den Wolken")
    assert await hashing.matches(made, "\u00fcber den Wolken")


@pytest.mark.parametrize("length", [0, MIN_LENGTH - 1, MAX_LENGTH + 1])
async def test_short_and_long_passwords_are_rejected(hashing: PasswordHashing, length: int) -> None:
    with pytest.raises(Invalid):
        await hashing.make_hash("x" * length)


async def test_passwords_of_the_shortest_and_longest_length_are_taken(hashing: PasswordHashing) -> None:
    for length in (MIN_LENGTH, MAX_LENGTH):
        assert await hashing.matches(await hashing.make_hash("x" * length), "x" * length)


class CountedHasher:
    """Passes on to the hasher, and keeps the parameters of the hashes that were verified."""

    def __init__(self, hasher: PasswordHasher) -> None:
        self._hasher = hasher
        self.hash = hasher.hash
        self.parameters: list[Parameters] = []

    def verify(self, password_hash: str, password: bytes) -> bool:
        self.parameters.append(extract_parameters(password_hash))
        return self._hasher.verify(password_hash, password)


async def test_an_unknown_user_costs_the_same_work_and_never_matches(
    hashing: PasswordHashing, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await hashing.make_hash(PASSWORD)
    counted = CountedHasher(hashing._hasher)
    monkeypatch.setattr(hashing, "_hasher", counted)
    assert not await hashing.matches(None, PASSWORD)
    assert not await hashing.matches(None, passwords.PASSWORD_OF_NOBODY)
    assert not await hashing.matches(made, "another password")
    assert counted.parameters == [extract_parameters(made)] * 3


async def test_a_hash_with_other_parameters_is_outdated(hashing: PasswordHashing) -> None:
    assert not hashing.is_outdated(await hashing.make_hash(PASSWORD))
    other = PasswordHashing(memory_kib=128)
    assert other.is_outdated(await hashing.make_hash(PASSWORD))
    assert await other.matches(await hashing.make_hash(PASSWORD), PASSWORD)
    other.close()


async def test_hashes_at_once_and_those_that_wait_are_bounded(
    hashing: PasswordHashing, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, running, most = Event(), 0, 0
    encoded = passwords._encoded

    def wait(password: str) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        go_on.wait(30)
        running -= 1
        return encoded(password)

    monkeypatch.setattr(passwords, "_encoded", wait)
    tasks = [asyncio.create_task(hashing.make_hash(PASSWORD)) for _ in range(CONCURRENT + MAX_WAITING)]
    await asyncio.sleep(0)  # each has begun
    with pytest.raises(Unavailable):
        await hashing.make_hash(PASSWORD)
    tasks.pop().cancel()
    go_on.set()
    assert len(await asyncio.gather(*tasks)) == CONCURRENT + MAX_WAITING - 1
    assert most <= CONCURRENT
    assert (await hashing.make_hash(PASSWORD)).startswith("$argon2id$")
