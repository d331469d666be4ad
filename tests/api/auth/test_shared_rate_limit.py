"""Rate limits that nodes of one database share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from api.auth.shared_rate_limit import SharedRateLimiter
from config.secrets import Secrets
from storage import tables
from storage.database.database import Database
from storage.nodes import shared_limits
from tests.peers import postgresql

KEYS = Secrets([Fernet.generate_key()])
NOW_S = 1_000_000.0
_t = tables.shared_limits


@pytest.fixture
async def limiters() -> AsyncIterator[list[SharedRateLimiter]]:
    """The limiters of three nodes."""
    server = await asyncio.to_thread(postgresql.server)
    url = await asyncio.to_thread(server.take_database)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, server.give_back, url)
        databases = [Database(url) for _ in range(3)]
        for each in databases:
            await each.open()
            stack.push_async_callback(each.close)
        yield [SharedRateLimiter(each, KEYS, is_shared=True) for each in databases]


async def draws(limiter: SharedRateLimiter) -> int:
    """What was drawn of all windows."""
    read = sa.select(sa.func.coalesce(sa.func.sum(_t.c.used), 0))
    return await limiter._database.read(lambda conn: int(conn.execute(read).scalar_one()))


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_nodes_never_allow_more_than_the_limit_and_leave_none_unused(
    limiters: list[SharedRateLimiter], limit: int
) -> None:
    states = await asyncio.gather(*(each.charge("key a", limit, NOW_S) for _ in range(limit) for each in limiters))
    assert sum(state.allowed for state in states) == limit
    assert await draws(limiters[0]) == limit
    assert {state.remaining for state in states if not state.allowed} == {0}
    assert not (await limiters[0].charge("key a", limit, NOW_S)).allowed
    assert (await limiters[0].charge("key b", limit, NOW_S)).allowed


async def test_few_requests_ask_the_database(
    limiters: list[SharedRateLimiter], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, draw = [], shared_limits.draw

    def count(conn: sa.Connection, name: str, limit: int, **more: float) -> shared_limits.Drawn:
        asked.append(name)
        return draw(conn, name, limit, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(shared_limits, "draw", count)
    for _ in range(300):
        assert (await limiters[0].charge("key a", 600, NOW_S)).allowed
    assert len(asked) == 6
    state = await limiters[0].charge("key a", 600, NOW_S)
    assert (state.limit, state.remaining) == (600, 299)
    assert 59 < state.reset_s - NOW_S <= 60


async def test_without_advance_each_request_counts_at_once(limiters: list[SharedRateLimiter]) -> None:
    first, second, third = limiters
    assert (await first.charge("user x", 2, NOW_S, in_advance=False)).allowed
    assert await draws(first) == 1
    assert (await second.charge("user x", 2, NOW_S, in_advance=False)).allowed
    assert not (await third.charge("user x", 2, NOW_S, in_advance=False)).allowed
    assert not (await first.charge("user x", 2, NOW_S, in_advance=False)).allowed


async def test_a_window_ends_for_all_nodes_at_once_and_old_ones_are_deleted(limiters: list[SharedRateLimiter]) -> None:
    async def grow_old(seconds: int) -> None:
        update = sa.update(_t).values(at_us=_t.c.at_us - seconds * 1_000_000)
        await limiters[0]._database.write(lambda conn: conn.execute(update))

    for _ in range(3):
        await limiters[0].charge("key a", 2, NOW_S)
    assert not (await limiters[1].charge("key a", 2, NOW_S)).allowed
    await grow_old(60)
    state = await limiters[2].charge("key a", 2, NOW_S)
    assert (state.allowed, state.remaining) == (True, 1)
    await grow_old(-7200)  # the clock of the database was set back
    limiters[2]._windows.clear()
    assert (await limiters[2].charge("key a", 2, NOW_S)).remaining == 1
    assert await limiters[0]._database.write(shared_limits.delete_old) == 0
    await grow_old(shared_limits.KEPT_S + 1)
    assert await limiters[0]._database.write(shared_limits.delete_old) == 1


async def test_the_database_has_no_text_of_the_client(limiters: list[SharedRateLimiter]) -> None:
    await limiters[0].charge("sign-in user correct horse", 2, NOW_S)
    (name,) = await limiters[0]._database.read(lambda conn: conn.execute(sa.select(_t.c.name)).scalars().all())
    assert "horse" not in name
    assert len(name) == 64


async def test_a_node_counts_alone_while_the_database_is_away(limiters: list[SharedRateLimiter]) -> None:
    await limiters[0]._database.close()
    states = [await limiters[0].charge("key a", 2, NOW_S) for _ in range(3)]
    assert [state.allowed for state in states] == [True, True, False]
    await limiters[0]._database.open()


async def test_the_starts_of_outbound_calls_of_all_nodes_are_spaced_evenly(limiters: list[SharedRateLimiter]) -> None:
    def reserve(conn: sa.Connection) -> float:
        return nodes_clock(conn) + shared_limits.reserve_start(conn, 4)

    def nodes_clock(conn: sa.Connection) -> float:
        return float(conn.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    starts = await asyncio.gather(
        *(each._database.write(reserve, lock=shared_limits.PACE_LOCK) for _ in range(10) for each in limiters)
    )
    gaps = [later - earlier for earlier, later in zip(sorted(starts), sorted(starts)[1:], strict=False)]
    assert min(gaps) == pytest.approx(0.25, abs=0.05)
    assert max(starts) - min(starts) == pytest.approx(29 * 0.25, abs=0.05)
