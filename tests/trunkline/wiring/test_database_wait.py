"""A start while the database is away: the server waits, and says that it is not ready."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from blockbuster import BlockBuster
from structlog.testing import capture_logs

from config.errors import StartupError
from config.settings import Settings
from storage.database.errors import DISK_FULL, DatabaseAway, StorageUnavailable
from tests.peers.ports import free_port
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.server_process import LOOPBACK, merged
from trunkline.wiring.storage.database_wait import DatabaseWait, StoppedWhileWaiting

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
        waiting = asyncio.create_task(DatabaseWait(settings, asyncio.Event(), QUICK).until_reachable(open_database))
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
        await DatabaseWait(settings_of(tmp_path), asyncio.Event()).until_reachable(open_database)


async def test_a_server_that_waits_can_be_stopped(tmp_path: Path, blocking_the_loop_fails: BlockBuster) -> None:
    blocking_the_loop_fails.deactivate()
    stopped = asyncio.Event()

    async def open_database() -> None:
        asyncio.get_running_loop().call_later(0.05, stopped.set)
        raise DatabaseAway("the database cannot be used: Connection refused")

    async with asyncio.timeout(20):
        with pytest.raises(StoppedWhileWaiting):
            await DatabaseWait(settings_of(tmp_path), stopped, (30.0, 30.0)).until_reachable(open_database)


class Outage:
    """A step of a start whose first attempts fail for these reasons."""

    def __init__(self, *errors: StorageUnavailable) -> None:
        self._errors = list(errors)

    async def __call__(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "stored"


def unreachable(cause: str) -> StorageUnavailable:
    return StorageUnavailable(cause, unreachable=True)


async def test_a_step_of_the_start_is_made_again_and_each_reason_is_logged_once(tmp_path: Path) -> None:
    standby = StorageUnavailable("the database is read-only", read_only=True)
    lost, refused = unreachable("connection lost"), unreachable("connection refused")
    wait = DatabaseWait(settings_of(tmp_path), asyncio.Event(), QUICK)
    wait.has_api = wait.has_endpoint = True
    with capture_logs() as lines:
        assert await wait.until_reachable(Outage(lost, refused, refused, refused, standby, standby)) == "stored"
        assert await wait.until_reachable(Outage()) == "stored"
    assert [(each["event"], each.get("why")) for each in lines] == [
        ("database.awaited", "storage: connection lost"),
        ("database.awaited", "storage: connection refused"),
        ("database.awaited", "storage: the database is read-only"),
        ("database.reached", None),
    ]


async def test_a_server_with_its_own_api_and_endpoint_keeps_them(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    with socket.create_server(("127.0.0.1", settings.api.port)):
        async with DatabaseWait(settings, asyncio.Event(), QUICK) as wait:
            wait.has_api = wait.has_endpoint = True
            assert await wait.until_reachable(Outage(unreachable("connection lost"))) == "stored"


async def test_other_errors_and_those_after_the_start_are_raised(tmp_path: Path) -> None:
    for error in (StorageUnavailable("locked"), StorageUnavailable(DISK_FULL)):
        with pytest.raises(StorageUnavailable, match=error.cause):
            await DatabaseWait(settings_of(tmp_path), asyncio.Event(), QUICK).until_reachable(Outage(error))
    async with DatabaseWait(settings_of(tmp_path), asyncio.Event(), QUICK) as wait:
        pass
    with pytest.raises(StorageUnavailable, match="connection lost"):
        await wait.until_reachable(Outage(unreachable("connection lost")))


async def test_a_step_that_waits_can_be_stopped_though_it_handles_all_exceptions(tmp_path: Path) -> None:
    stopped = asyncio.Event()
    stopped.set()
    wait = DatabaseWait(settings_of(tmp_path), stopped, QUICK)
    wait.has_api = wait.has_endpoint = True
    with pytest.raises(StoppedWhileWaiting), suppress(Exception):
        await wait.until_reachable(Outage(unreachable("connection lost")))
