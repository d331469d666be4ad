"""Random conversations: hundreds of calls with thousands of events in random order keep all invariants."""

from __future__ import annotations

import pytest

from tests.calls.conversation.random_conversation import RandomCall
from tests.virtual_time import run_virtually

CALLS = 240


async def _live(seed: int) -> None:
    await RandomCall(seed).run()


@pytest.mark.parametrize("first", range(0, CALLS, 40))
def test_random_conversations_keep_all_invariants(first: int) -> None:
    for seed in range(first, first + 40):
        try:
            run_virtually(_live(seed))
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
