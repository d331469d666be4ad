"""The execution of a transfer while its INVITE is being sent."""

from __future__ import annotations

import asyncio

import pytest

from calls.session.transfer.execution import _first_end
from storage.calls.calls import EndedReason


@pytest.mark.parametrize("first", [0, 1])
async def test_the_first_end_counts_and_none_is_waited_for_afterwards(first: int) -> None:
    loop = asyncio.get_running_loop()
    endings: list[asyncio.Future[EndedReason]] = [loop.create_future(), loop.create_future()]
    with _first_end(*endings) as of_two:
        endings[first].set_result("api_hangup")
        assert await of_two == "api_hangup"
        endings[1 - first].set_result("agent_ended")
    with _first_end(*endings) as of_ended:
        assert await of_ended == endings[0].result()
    lasting: asyncio.Future[EndedReason] = loop.create_future()
    with _first_end(lasting) as unused:
        pass
    lasting.set_result("customer_ended")
    await asyncio.sleep(0)
    assert not unused.done()
