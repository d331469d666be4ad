"""Overload: calls beyond a limit are rejected, and leave no resources behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa

from calls import invite_admission
from sipcore import _native
from sipcore.security import source_guard
from storage import tables
from tests.peers.ports import RTP_PORTS
from tests.sipcore.raw.raw_phone import Dialog, RawPhone
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PhoneCall, calling, dialled
from tests.trunkline.small_disk import NEEDS_ROOT, filled, small_disk

pytestmark = pytest.mark.asyncio(loop_scope="module")
PLACES = 4
MANY = 300
AT_ONCE = 50
"""INVITEs in flight at the same time, because a socket's buffer is limited."""
PAIRS = 100
"""Calls that the RTP ports suffice for: those that wait for the database have ports as well."""
FIRST_PORT = 30000 + (RTP_PORTS[0] - 10000) // 4
"""RTP ports that no other test uses, nor the ports after them: in one test all are in use."""
SETTINGS: dict[str, Any] = {
    "limits": {"max_calls": PLACES, "max_outbound_per_second": 500},
    "sip": {"max_invites_per_second": 100_000, "rtp_ports": f"{FIRST_PORT}-{FIRST_PORT + 2 * PAIRS - 1}"},
}
FULL = (503, "10")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """A server with a low call limit, with its data on a small disk if one can be mounted."""
    folder = tmp_path_factory.mktemp("server")
    with small_disk(folder, "64m"):
        async with open_local_server(folder, **SETTINGS) as local_server:
            yield local_server


@pytest_asyncio.fixture(loop_scope="module")
async def line(local_server: LocalServer) -> str:
    """A number whose agent waits for the caller to speak without a limit."""
    return await local_server.number_with_agent("Thank you.", customerSilenceMs=0)


@dataclass(frozen=True)
class Footprint:
    """The resources that calls use."""

    descriptors: int
    threads: int
    tasks: int
    live: int
    legs: int
    objects: int
    slots: int
    ports: int
    table: int = 0

    @classmethod
    def of(cls, local_server: LocalServer) -> Footprint:
        """The resources in use now."""
        server = local_server.server
        registry = server.endpoint._call_registry
        assert registry is not None
        return cls(
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=threading.active_count(),
            tasks=len(asyncio.all_tasks()),
            live=server.calls.active_call_count,
            legs=server.endpoint.live_legs,
            objects=len(registry._calls),
            slots=server.endpoint.pump.stats().calls,
            ports=PAIRS - _native.rtp_ports_left(),
            table=_native.call_table_used(),
        )


async def assert_released(local_server: LocalServer, before: Footprint) -> None:
    """Assert that all resources are released within seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):
            while _more(Footprint.of(local_server), before):  # noqa: ASYNC110 - the kernel tells nobody
                await asyncio.sleep(0.05)
    assert _more(Footprint.of(local_server), before) == {}


def _more(now: Footprint, before: Footprint) -> dict[str, tuple[int, int]]:
    """The resources of which more are in use than before."""
    pairs = {name: (had, asdict(now)[name]) for name, had in asdict(before).items()}
    return {
        name: (had, has) for name, (had, has) in pairs.items() if (had > has if name == "ports_left" else has > had)
    }


async def final_statuses(local_server: LocalServer, number: str, count: int = MANY) -> Counter[tuple[int, str]]:
    """Send `count` INVITEs to a number; returns how often each final status came, with its Retry-After."""
    statuses: Counter[tuple[int, str]] = Counter()
    async with RawPhone(local_server.target) as phone:
        for _ in range(0, count, AT_ONCE):
            waiting: dict[str, tuple[Dialog, str]] = {}
            for _ in range(AT_ONCE):
                dialog = dialled(phone, number)
                waiting[dialog.call_id] = dialog, phone.invite(dialog, phone.offer())
            while waiting:
                answer = await phone.final_response("INVITE")
                if (call := waiting.pop(answer.header("Call-ID"), None)) is not None:
                    statuses[answer.status, answer.header("Retry-After")] += 1
                    phone.acknowledge(call[0], answer, call[1])
    return statuses


@contextlib.asynccontextmanager
async def talking(local_server: LocalServer, number: str, calls: int) -> AsyncIterator[list[PhoneCall]]:
    """Calls that are up during the block, and still have audio at its end."""
    async with contextlib.AsyncExitStack() as stack:
        made = [await begin(local_server, number, stack) for _ in range(calls)]
        yield made
        for call in made:
            await call.hears(5)


async def begin(local_server: LocalServer, number: str, stack: contextlib.AsyncExitStack) -> PhoneCall:
    """Make a call that is hung up when the stack is closed."""
    call = await stack.enter_async_context(calling(local_server.target, number))
    stack.push_async_callback(call.hang_up)
    return call


async def test_a_full_server_responds_503_until_a_call_has_ended(local_server: LocalServer, line: str) -> None:
    before = Footprint.of(local_server)
    async with talking(local_server, line, PLACES - 1), contextlib.AsyncExitStack() as last:
        await (await begin(local_server, line, last)).hears(10)
        full = Footprint.of(local_server)
        assert await final_statuses(local_server, line) == {FULL: MANY}
        await assert_released(local_server, full)
        async with RawPhone(local_server.target) as phone:
            assert (await phone.options()).status == 503
            since = local_server.log.mark()
            await last.aclose()
            await local_server.log.event("call.ended", since=since)
            assert (await phone.options()).status == 200
        async with talking(local_server, line, 1):
            pass
    await assert_released(local_server, before)


async def test_an_organization_at_its_call_limit_is_busy(local_server: LocalServer, line: str) -> None:
    async def allow(most: int | None) -> None:
        change = sa.update(tables.organizations).values(max_calls=most)
        await local_server.server.database.write(lambda conn: conn.execute(change))

    before = Footprint.of(local_server)
    async with talking(local_server, line, 1):
        await allow(1)
        statuses = await final_statuses(local_server, line)
        await allow(None)
    assert statuses == {(486, ""): MANY}
    await assert_released(local_server, before)


async def test_calls_above_the_invite_rate_get_503_with_retry_after(local_server: LocalServer, line: str) -> None:
    before = Footprint.of(local_server)
    source_guard.set_invite_rate_limit(10)
    try:
        statuses = await final_statuses(local_server, "999")
    finally:
        source_guard.set_invite_rate_limit(SETTINGS["sip"]["max_invites_per_second"])
    assert statuses.keys() == {(404, ""), (503, "2")}
    assert statuses[503, "2"] > MANY / 2
    await assert_released(local_server, before)


async def test_calls_without_a_free_rtp_port_get_503(local_server: LocalServer, line: str) -> None:
    """Other programs use all RTP ports, and the ports after them that PJSIP would try."""
    before = Footprint.of(local_server)
    with contextlib.ExitStack() as stack:
        for port in range(FIRST_PORT, FIRST_PORT + 400):
            with contextlib.suppress(OSError):  # another program has this one already
                stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)).bind(("127.0.0.1", port))
        taken = Footprint.of(local_server)
        assert await final_statuses(local_server, line) == {FULL: MANY}
        await assert_released(local_server, taken)
    await local_server.log.event("sip.no_rtp_port")
    await assert_released(local_server, before)
    async with talking(local_server, line, 1):
        pass


BEGINS = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute(sys.argv[2])
print(flush=True)
sys.stdin.read()
"""
"""A process of its own, because SQLite keeps a second connection's files open until the first one of a process is
idle."""
LOCKS, EMPTIES_LOG = "BEGIN IMMEDIATE", "PRAGMA wal_checkpoint(TRUNCATE)"


@contextlib.asynccontextmanager
async def another_program(statement: str, path: Path) -> AsyncIterator[None]:
    """Run a statement in another process, which keeps the database open during the block."""
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BEGINS, path, statement, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    await other.stdout.readline()
    try:
        yield
    finally:
        await other.communicate(b"")


async def test_a_locked_database_rejects_calls(
    local_server: LocalServer, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invite_admission, "ADMISSION_TIMEOUT_S", 0.5)
    before = Footprint.of(local_server)
    async with another_program(LOCKS, local_server.server.database.path):
        assert await final_statuses(local_server, line) == {FULL: MANY}
    await assert_released(local_server, before)
    async with talking(local_server, line, 1):
        pass
    assert {call["callSid"] for call in await local_server.client.v1("GET", "calls?limit=5&status=failed")} == set()


async def test_cancelled_calls_do_not_use_up_the_call_limit(local_server: LocalServer, line: str) -> None:
    """Each has a SIP transaction that waits 32 s for the callee."""
    clients = PLACES - 1
    await asyncio.gather(*(local_server.client.v1("GET", "calls") for _ in range(clients)))  # each has a connection now
    before = Footprint.of(local_server)
    async with RawPhone(local_server.target) as silent:
        number = await local_server.client.number("900", None, sipPort=silent.sip.port)
        body = {"agentId": await local_server.client.agent(), "phoneNumberId": number, "to": "+41445550199"}

        async def ring_and_cancel() -> None:
            for _ in range(15):
                call = await local_server.client.v1("POST", "calls", body)
                await local_server.log.event("call.placed", call_id=call["id"])
                ended = await local_server.client.v1("POST", f"calls/{call['id']}/hangup")
                assert (ended["status"], ended["endedReason"]) == ("no_answer", "api_hangup")

        await asyncio.gather(*(ring_and_cancel() for _ in range(clients)))
        assert _native.call_table_used() >= 15 * clients
        async with talking(local_server, line, PLACES):
            pass
    await assert_released(local_server, replace(before, table=before.table + 15 * PLACES))


async def test_a_full_disk_does_not_lower_the_call_limit(local_server: LocalServer, line: str) -> None:
    data_dir = local_server.server.settings.data_dir
    if not data_dir.is_mount():
        pytest.skip(NEEDS_ROOT)
    before = Footprint.of(local_server)
    async with talking(local_server, line, 1):
        async with another_program(EMPTIES_LOG, local_server.server.database.path):
            pass  # what is written next needs room
        with filled(data_dir):
            async with talking(local_server, line, PLACES - 1):
                assert await final_statuses(local_server, line) == {FULL: MANY}
    await assert_released(local_server, before)
    async with talking(local_server, line, 1):
        pass
