"""Messages to the service manager, received at a real socket: start, watchdog, drain."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from tests.trunkline.server_process import Server
from trunkline.server.service_manager import STOP_MARGIN_S, ServiceManager

pytestmark = pytest.mark.asyncio(loop_scope="package")
WATCHDOG_S = 0.3
DRAIN_S = 60.0


class Listener:
    """The service manager's socket: a path, or an abstract name that begins with @."""

    def __init__(self, address: str) -> None:
        self.variables = {"NOTIFY_SOCKET": address}
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)

    def waiting(self) -> list[str]:
        """The messages that have come and were not read yet."""
        messages = []
        while True:
            try:
                messages.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return messages

    async def message(self, *assignments: str, timeout_s: float = 40) -> list[str]:
        """Wait for a message with these assignments; returns all of its lines."""
        async with asyncio.timeout(timeout_s):
            while True:
                raw = await asyncio.get_running_loop().sock_recv(self.socket, 4096)
                if set(assignments) <= set(lines := raw.decode().split("\n")):
                    return lines


@contextmanager
def listening(address: str) -> Iterator[Listener]:
    listener = Listener(address)
    with listener.socket:
        yield listener


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    with listening(str(tmp_path / "notify") if request.param == "path" else f"@trunkline-{uuid4()}") as listener:
        yield listener


@asynccontextmanager
async def informed(
    listener: Listener, watchdog_s: float, drain: asyncio.Event, drain_s: float = DRAIN_S
) -> AsyncIterator[ServiceManager]:
    manager = ServiceManager(listener.variables | {"WATCHDOG_USEC": str(int(watchdog_s * 1e6))})
    async with manager.informed(drain, drain_s):
        yield manager


def block_event_loop(seconds: float) -> None:
    """Keep the event loop from running, as a fault would."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        pass


async def test_a_stalled_event_loop_sends_no_watchdog_message(listener: Listener) -> None:
    async with informed(listener, WATCHDOG_S, asyncio.Event()) as manager:
        manager.ready(lambda: True)
        await listener.message("READY=1")
        await listener.message("WATCHDOG=1")
        listener.waiting()
        block_event_loop(WATCHDOG_S * 1.5)
        assert listener.waiting() == [], "nothing came for longer than the watchdog waits"
        await listener.message("WATCHDOG=1")


async def test_standing_audio_sends_no_watchdog_message(listener: Listener) -> None:
    asked, enough = 0, asyncio.Event()

    def audio_advances() -> bool:
        nonlocal asked
        asked += 1
        if asked == 5:
            enough.set()
        return asked <= 2

    async with informed(listener, WATCHDOG_S, asyncio.Event()) as manager:
        manager.ready(audio_advances)
        async with asyncio.timeout(20):
            await enough.wait()
    assert listener.waiting().count("WATCHDOG=1") <= 3  # one before it was ready, two while audio ran


async def test_a_start_and_a_drain_extend_their_time_out(listener: Listener) -> None:
    drain = asyncio.Event()
    async with informed(listener, WATCHDOG_S, drain) as manager:
        await listener.message("EXTEND_TIMEOUT_USEC=60000000")
        manager.ready(lambda: True)
        await listener.message("READY=1")
        listener.waiting()
        await listener.message("WATCHDOG=1")
        assert not any("EXTEND" in message for message in listener.waiting())
        drain.set()
        await listener.message("STOPPING=1")
        await listener.message("EXTEND_TIMEOUT_USEC=60000000")
        await listener.message("EXTEND_TIMEOUT_USEC=60000000")
        assert "WATCHDOG=1" not in listener.waiting(), "it would start the watchdog again, and the audio ends"


async def test_a_stop_that_takes_longer_than_a_drain_may_is_not_extended(listener: Listener) -> None:
    drain, asked = asyncio.Event(), asyncio.Event()
    async with informed(listener, WATCHDOG_S, drain, -STOP_MARGIN_S) as manager:
        manager.ready(lambda: True)
        await listener.message("WATCHDOG=1")
        drain.set()
        await listener.message("STOPPING=1")
        asyncio.get_running_loop().call_later(WATCHDOG_S, asked.set)
        await asked.wait()
    assert listener.waiting() == [], "nothing came for several intervals"


async def test_a_service_manager_that_does_not_read_gets_the_changes_of_state_later(tmp_path: Path) -> None:
    with listening(str(tmp_path / "notify")) as listener:
        async with informed(listener, WATCHDOG_S, asyncio.Event()) as manager:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, suppress(BlockingIOError):
                other.setblocking(False)
                for _ in range(10_000):  # the kernel queues a few
                    other.sendto(b"X=1", listener.variables["NOTIFY_SOCKET"])
            manager.ready(lambda: True)
            assert "READY=1\nSTATUS=serving" not in listener.waiting()
            await listener.message("READY=1")


async def test_without_a_service_manager_nothing_is_sent_and_with_a_lost_one_one_warning() -> None:
    async with ServiceManager({}).informed(asyncio.Event(), DRAIN_S):
        pass
    with capture_logs() as lines:
        manager = ServiceManager({"NOTIFY_SOCKET": "/nonexistent/notify"})
        async with manager.informed(asyncio.Event(), DRAIN_S):
            manager.ready(lambda: True)
    assert [line["event"] for line in lines] == ["service.not_notified"]


async def test_a_watchdog_of_another_process_is_not_served(tmp_path: Path) -> None:
    with listening(str(tmp_path / "notify")) as listener:
        variables = listener.variables | {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": str(os.getpid() + 1)}
        manager = ServiceManager(variables)
        async with manager.informed(asyncio.Event(), DRAIN_S):
            manager.ready(lambda: True)
            await listener.message("READY=1")
            await asyncio.sleep(0)
        assert "WATCHDOG=1" not in listener.waiting()
    assert variables == {}, "processes that the server starts do not get them"


async def test_a_server_reports_its_start_its_life_and_its_end(tmp_path: Path) -> None:
    with listening(f"@trunkline-{uuid4()}") as listener:
        server = Server(tmp_path, limits={"slow_answers": "off"})
        server.environment |= listener.variables | {"WATCHDOG_USEC": "600000"}
        starting = asyncio.create_task(server.start())
        try:
            assert await listener.message("READY=1") == ["READY=1", "STATUS=serving"]
            await starting
            for _ in range(3):  # with both its threads of audio
                await listener.message("WATCHDOG=1")
            server.signal(signal.SIGTERM)
            await listener.message("STOPPING=1")
            assert await server.ended(40) == 0
        finally:
            await asyncio.wait((starting,))
            await server.close()
