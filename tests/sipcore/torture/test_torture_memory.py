"""Mutated messages and unfinished calls leak nothing, once SIP's timers have expired."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.sipcore.accelerated_endpoint import AcceleratedPhone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.torture.message_mutator import Mutator

ROUNDS, MESSAGES = 3, 800
METHODS = ("INVITE", "INVITE", "OPTIONS", "REGISTER", "BYE", "CANCEL")
TRANSACTIONS_LAST_S = 1.5
"""Half a minute by the server's clock, and some more."""
SPARE_BYTES = 2 << 20


async def attack(raw: RawPhone, mutate: Mutator) -> None:
    """Half mutated messages, half calls that are begun and abandoned."""
    for number in range(MESSAGES):
        method = METHODS[number % len(METHODS)]
        request = raw.request(method, raw.dialog(), body=raw.offer("0") if method == "INVITE" else "")
        raw.send(mutate(request) if number % 2 else request)
        if number % 50 == 0:
            await raw.wait_processed()


async def memory_after_all_calls(accelerated: AcceleratedPhone, idle_files: int) -> int:
    """Wait until all calls are over and their sockets closed; returns the memory in use."""
    for _ in range(400):
        await asyncio.sleep(0.1)
        if accelerated.memory_and_descriptors()[1] <= idle_files:
            break
    await asyncio.sleep(TRANSACTIONS_LAST_S)
    memory, files = accelerated.memory_and_descriptors()
    assert files <= idle_files
    return memory


@pytest.mark.timeout(180)
async def test_memory_and_descriptors_are_released() -> None:
    """Memory that grows only at first is cached; a leak grows each time."""
    mutate = Mutator(18)
    held: list[int] = []
    async with AcceleratedPhone.started() as accelerated, RawPhone(accelerated.target) as raw:
        _, idle_files = accelerated.memory_and_descriptors()
        for _ in range(ROUNDS):
            await attack(raw, mutate)
            held.append(await memory_after_all_calls(accelerated, idle_files))
        await raw.wait_processed()
    assert min(after - before for before, after in itertools.pairwise(held)) < SPARE_BYTES
