"""More calls than there is room for: each is told so, and leaves nothing behind."""

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

from calls import service
from sipcore import _native
from sipcore.security import source_guard
from storage import tables
from tests.peers.sipp_baresip import RTP_PORTS
from tests.sipcore.raw.raw_phone import Dialog, RawPhone
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PhoneCall, calling, dialled
from tests.trunkline.small_disk import NEEDS_ROOT, filled, small_disk

pytestmark = pytest.mark.asyncio(loop_scope="module")
PLACES = 4
MANY = 300
AT_ONCE = 50
"""INVITEs on their way at the same time: a socket's buffer holds only so many."""
PAIRS = 100
"""Of ports: who waits for the database has some, too."""
FIRST_PORT = 30000 + (RTP_PORTS[0] - 10000) // 4
"""No other test opens these, nor those after them: in one test none may be free."""
SETTINGS: dict[str, Any] = {
    "limits": {"max_calls": PLACES, "max_outbound_per_second": 500},
    "sip": {"max_invites_per_second": 100_000, "rtp_ports": f"{FIRST_PORT}-{FIRST_PORT + 2 * PAIRS - 1}"},
}
FULL = (503, "10")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """A server with few places. Its data is on a small disk where one can be had."""
    folder = tmp_path_factory.mktemp("place")
    with small_disk(folder, "64m"):
        async with open_local_server(folder, **SETTINGS) as local_server:
            yield local_server


@pytest_asyncio.fixture(loop_scope="module")
async def line(local_server: LocalServer) -> str:
    """A number whose agent waits for its caller to speak, for as long as that takes."""
    return await local_server.number_with_agent("Thank you.", customerSilenceMs=0)


@dataclass(frozen=True)
class Footprint:
    """What calls take."""

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
        """As it is now."""
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


async def leaves_nothing(local_server: LocalServer, before: Footprint) -> None:
    """All that was taken is given back, within seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):
            while _more(Footprint.of(local_server), before):  # noqa: ASYNC110 - the kernel tells nobody
                await asyncio.sleep(0.05)
    assert _more(Footprint.of(local_server), before) == {}


def _more(now: Footprint, before: Footprint) -> dict[str, tuple[int, int]]:
    """What there is more of than before; of ports, fewer that are free."""
    pairs = {name: (had, asdict(now)[name]) for name, had in asdict(before).items()}
    return {
        name: (had, has) for name, (had, has) in pairs.items() if (had > has if name == "ports_left" else has > had)
    }


async def answers_to(local_server: LocalServer, number: str, count: int = MANY) -> Counter[tuple[int, str]]:
    """So many INVITEs to a number; how often each final status came, with its Retry-After."""
    told: Counter[tuple[int, str]] = Counter()
    async with RawPhone(local_server.target) as phone:
        for _ in range(0, count, AT_ONCE):
            waiting: dict[str, tuple[Dialog, str]] = {}
            for _ in range(AT_ONCE):
                dialog = dialled(phone, number)
                waiting[dialog.call_id] = dialog, phone.invite(dialog, phone.offer())
            while waiting:
                answer = await phone.final("INVITE")
                if (call := waiting.pop(answer.header("Call-ID"), None)) is not None:
                    told[answer.status, answer.header("Retry-After")] += 1
                    phone.acknowledge(call[0], answer, call[1])
    return told


@contextlib.asynccontextmanager
async def talking(local_server: LocalServer, number: str, calls: int) -> AsyncIterator[list[PhoneCall]]:
    """So many calls that go on for the block, and can be heard at its end."""
    async with contextlib.AsyncExitStack() as stack:
        made = [await begin(local_server, number, stack) for _ in range(calls)]
        yield made
        for call in made:
            await call.hears(5)


async def begin(local_server: LocalServer, number: str, stack: contextlib.AsyncExitStack) -> PhoneCall:
    """A call that is hung up when the stack is left."""
    call = await stack.enter_async_context(calling(local_server.target, number))
    stack.push_async_callback(call.hang_up)
    return call


async def test_a_full_server_says_503_and_takes_calls_again_as_soon_as_one_has_ended(
    local_server: LocalServer, line: str
) -> None:
    before = Footprint.of(local_server)
    async with talking(local_server, line, PLACES - 1), contextlib.AsyncExitStack() as last:
        await (await begin(local_server, line, last)).hears(10)
        full = Footprint.of(local_server)
        assert await answers_to(local_server, line) == {FULL: MANY}
        await leaves_nothing(local_server, full)
        async with RawPhone(local_server.target) as phone:
            assert (await phone.options()).status == 503
            since = local_server.log.mark()
            await last.aclose()
            await local_server.log.event("call.ended", since=since)
            assert (await phone.options()).status == 200
        async with talking(local_server, line, 1):
            pass
    await leaves_nothing(local_server, before)


async def test_an_organization_with_all_its_calls_is_busy(local_server: LocalServer, line: str) -> None:
    async def allow(most: int | None) -> None:
        change = sa.update(tables.organizations).values(max_calls=most)
        await local_server.server.database.write(lambda conn: conn.execute(change))

    before = Footprint.of(local_server)
    async with talking(local_server, line, 1):
        await allow(1)
        told = await answers_to(local_server, line)
        await allow(None)
    assert told == {(486, ""): MANY}
    await leaves_nothing(local_server, before)


async def test_who_begins_more_calls_than_one_may_is_told_to_come_back(local_server: LocalServer, line: str) -> None:
    before = Footprint.of(local_server)
    source_guard.set_invite_rate_limit(10)
    try:
        told = await answers_to(local_server, "999")
    finally:
        source_guard.set_invite_rate_limit(SETTINGS["sip"]["max_invites_per_second"])
    assert told.keys() == {(404, ""), (503, "2")}
    assert told[503, "2"] > MANY / 2
    await leaves_nothing(local_server, before)


async def test_without_a_port_for_the_sound_calls_get_503(local_server: LocalServer, line: str) -> None:
    """Other programs have all of them, and those after them that PJSIP would try."""
    before = Footprint.of(local_server)
    with contextlib.ExitStack() as stack:
        for port in range(FIRST_PORT, FIRST_PORT + 400):
            stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)).bind(("127.0.0.1", port))
        taken = Footprint.of(local_server)
        assert await answers_to(local_server, line) == {FULL: MANY}
        await leaves_nothing(local_server, taken)
    await local_server.log.event("sip.no_rtp_port")
    await leaves_nothing(local_server, before)
    async with talking(local_server, line, 1):
        pass


BEGINS = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute(sys.argv[2])
print(flush=True)
sys.stdin.read()
"""
"""SQLite does not close the files of a second connection in one process before the first has nothing to do."""
LOCKS, EMPTIES_LOG = "BEGIN IMMEDIATE", "PRAGMA wal_checkpoint(TRUNCATE)"


@contextlib.asynccontextmanager
async def another_program(statement: str, path: Path) -> AsyncIterator[None]:
    """A process that has done this to the database, and has it open for the block."""
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BEGINS, path, statement, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    await other.stdout.readline()
    try:
        yield
    finally:
        await other.communicate(b"")


async def test_a_database_that_does_not_answer_turns_calls_away(
    local_server: LocalServer, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "ADMISSION_TIMEOUT_S", 0.5)
    before = Footprint.of(local_server)
    async with another_program(LOCKS, local_server.server.database.path):
        assert await answers_to(local_server, line) == {FULL: MANY}
    await leaves_nothing(local_server, before)
    async with talking(local_server, line, 1):
        pass
    assert {call["callSid"] for call in await local_server.client.v1("GET", "calls?limit=5&status=failed")} == set()


async def test_calls_that_are_given_up_before_anybody_answered_keep_nobody_out(
    local_server: LocalServer, line: str
) -> None:
    """SIP waits 32 s for the callee of each."""
    clients = PLACES - 1
    await asyncio.gather(*(local_server.client.v1("GET", "calls") for _ in range(clients)))  # each has a connection now
    before = Footprint.of(local_server)
    async with RawPhone(local_server.target) as silent:
        number = await local_server.client.number("900", None, sipPort=silent.sip.port)
        body = {"agentId": await local_server.client.agent(), "phoneNumberId": number, "to": "+41445550199"}

        async def ring_in_vain() -> None:
            for _ in range(15):
                call = await local_server.client.v1("POST", "calls", body)
                await local_server.log.event("call.placed", call_id=call["id"])
                ended = await local_server.client.v1("POST", f"calls/{call['id']}/hangup")
                assert (ended["status"], ended["endedReason"]) == ("no_answer", "api_hangup")

        await asyncio.gather(*(ring_in_vain() for _ in range(clients)))
        assert _native.call_table_used() >= 15 * clients
        async with talking(local_server, line, PLACES):
            pass
    await leaves_nothing(local_server, replace(before, table=before.table + 15 * PLACES))


async def test_on_a_full_disk_calls_have_their_places_and_only_those_beyond_are_turned_away(
    local_server: LocalServer, line: str
) -> None:
    data_dir = local_server.server.settings.data_dir
    if not data_dir.is_mount():
        pytest.skip(NEEDS_ROOT)
    before = Footprint.of(local_server)
    async with talking(local_server, line, 1):
        async with another_program(EMPTIES_LOG, local_server.server.database.path):
            pass  # what is written next needs room
        with filled(data_dir):
            async with talking(local_server, line, PLACES - 1):
                assert await answers_to(local_server, line) == {FULL: MANY}
    await leaves_nothing(local_server, before)
    async with talking(local_server, line, 1):
        pass
