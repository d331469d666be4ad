"""A start while the database is away: the server waits, and says that it is not ready."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from blockbuster import BlockBuster
from structlog.testing import capture_logs

from config.errors import StartupError
from config.settings import Settings
from storage.database.errors import DatabaseAway
from tests.peers.ports import free_port
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.server_process import LOOPBACK, merged
from trunkline.wiring.database_wait import StoppedWhileWaiting, wait_for_database

pytestmark = pytest.mark.asyncio(loop_scope="package")
QUICK = (0.01, 0.02)


def settings_of(folder: Path) -> Settings:
    own = {"sip": {"port": free_port(), "probes": ["127.0.0.1"]}, "api": {"port": free_port()}}
    return Settings(data_dir=folder).with_changes(merged(LOOPBACK, own))


async def statuses(settings: Settings, *paths: str) -> list[int]:
    found = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{settings.api.port}") as client:
        for path in paths:
            async with client.get(path) as response:
                found.append(response.status)
    return found


async def test_meanwhile_only_the_liveness_is_200_and_sip_gets_503(
    tmp_path: Path, blocking_the_loop_fails: BlockBuster
) -> None:
    blocking_the_loop_fails.deactivate()
    settings, away, attempts = settings_of(tmp_path), True, 0

    async def open_database() -> None:
        nonlocal attempts
        attempts += 1
        if away:
            raise DatabaseAway("the database cannot be used: Connection refused")

    with capture_logs() as lines:
        waiting = asyncio.create_task(wait_for_database(settings, open_database, asyncio.Event(), QUICK))
        async with asyncio.timeout(20):
            while not attempts > 3:  # noqa: ASYNC110 - the placeholders are up by the second attempt
                await asyncio.sleep(0.01)
        assert await statuses(settings, "/healthz", "/readyz", "/v1/agents") == [200, 503, 503]
        async with RawPhone(f"127.0.0.1:{settings.sip.port}") as phone:
            phone.send(phone.request("OPTIONS", phone.dialog()))
            response = await phone.final_response("OPTIONS")
            assert (response.status, response.header("Retry-After")) == (503, "10")
        away = False
        await waiting
    events = [each["event"] for each in lines if each["event"].startswith("database.")]
    assert events == ["database.awaited", "database.reached"]
    with pytest.raises(aiohttp.ClientConnectionError):
        await statuses(settings, "/healthz")


async def test_wrong_settings_end_the_wait_at_once(tmp_path: Path) -> None:
    async def open_database() -> None:
        raise StartupError("the database cannot be used: password authentication failed")

    with pytest.raises(StartupError, match="password"):
        await wait_for_database(settings_of(tmp_path), open_database, asyncio.Event())


async def test_a_server_that_waits_can_be_stopped(tmp_path: Path, blocking_the_loop_fails: BlockBuster) -> None:
    blocking_the_loop_fails.deactivate()
    stopped = asyncio.Event()

    async def open_database() -> None:
        asyncio.get_running_loop().call_later(0.05, stopped.set)
        raise DatabaseAway("the database cannot be used: Connection refused")

    async with asyncio.timeout(20):
        with pytest.raises(StoppedWhileWaiting):
            await wait_for_database(settings_of(tmp_path), open_database, stopped, (30.0, 30.0))
