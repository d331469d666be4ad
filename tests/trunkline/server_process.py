"""A complete server as a process, its log, and a webhook receiver. Everything is on loopback; tests wait for log
events, packets and ends of processes only."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Self

import sqlalchemy as sa
from aiohttp import web

from storage.accounts import api_keys, organizations
from storage.database.database import Database
from tests.peers.ports import RTP_PORTS, free_port
from tests.trunkline import forked_server
from tests.trunkline.forked_server import ForkedServer
from tests.trunkline.initial_data import copy_initial_data

TRUNKLINE = str(Path(sys.executable).with_name("trunkline"))
"""The installed command."""
LOOPBACK: dict[str, Any] = {
    "log_format": "json",
    "api": {"host": "127.0.0.1"},
    "sip": {"host": "127.0.0.1", "rtp_ports": "{}-{}".format(*RTP_PORTS)},
    "webhooks": {"allow_http": True},
    "egress": {"allow": ["127.0.0.0/8"]},
    "limits": {"requests_per_minute": 100_000, "slow_answers": "off"},
    "trunks": {"policy": "open"},
}


def environment(data_dir: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a command on this data directory. `settings` are nested as in `trunkline.toml`. HOME is the
    folder `home` beside the data directory."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TRUNKLINE_", "ORT_", "XDG_"))}
    home = data_dir.absolute().parent / "home"
    return {**env, "HOME": str(home), "TRUNKLINE_DATA_DIR": str(data_dir), **dict(_variables("TRUNKLINE", settings))}


def _variables(prefix: str, settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    variables = []
    for name, value in settings.items():
        key = f"{prefix}_{name.upper()}"
        if isinstance(value, Mapping):
            variables += _variables(f"{key}_", value)
        else:
            variables.append((key, value if isinstance(value, str) else json.dumps(value)))
    return variables


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings with nested changes."""
    result = dict(base)
    for name, value in changes.items():
        result[name] = merged(base.get(name, {}), value) if isinstance(value, Mapping) else value
    return result


class JsonLines:
    """The JSON objects that a process writes, one per line; `event` waits for one. Other lines are kept as well."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._news = asyncio.Event()
        self._over = True

    def begin(self) -> None:
        """Expect lines of a new process."""
        self._over = False

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Read to the end of the stream."""
        async for raw in stream:
            self.take(raw.decode(errors="replace").rstrip("\n"))
        self._over = True
        self._news.set()

    def take(self, line: str) -> None:
        """Add a line. On the event loop."""
        self.lines.append(line)
        self.events.append(_parsed(line))
        self._news.set()

    def mark(self) -> int:
        """The current position, for `since`."""
        return len(self.events)

    def all(self, name: str, since: int = 0, **fields: Any) -> list[dict[str, Any]]:
        """The events of that name with these fields, from the position `since` on."""
        return [event for event in self.events[since:] if _fits(event, name, fields)]

    async def event(self, name: str, *, since: int = 0, timeout_s: float = 20, **fields: Any) -> dict[str, Any]:
        """Wait for the first such event. Raises `AssertionError` if the process ends without it, or after
        `timeout_s`."""
        return (await self.events_of(name, 1, since=since, timeout_s=timeout_s, **fields))[0]

    async def events_of(
        self, name: str, count: int, *, since: int = 0, timeout_s: float = 20, **fields: Any
    ) -> list[dict[str, Any]]:
        """Wait for `count` such events. Raises `AssertionError` as `event` does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while len(self.all(name, since, **fields)) < count and not self._over:
                    self._news.clear()
                    await self._news.wait()
        found = self.all(name, since, **fields)
        assert len(found) >= count, f"{self.name} wrote {len(found)} of {count} {name} {fields}; it ended: {self._over}"
        return found


def _parsed(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _fits(event: Mapping[str, Any], name: str, fields: Mapping[str, Any]) -> bool:
    return event.get("event") == name and all(event.get(key) == value for key, value in fields.items())


class Server:
    """`trunkline serve` on its own data directory. It can be started again after its end, with the same ports."""

    running: ClassVar[list[Server]] = []
    """The servers whose logs a failure report shows."""

    def __init__(self, folder: Path, *, fresh: bool = False, command: str = "", **settings: Any) -> None:
        """`settings`: tables such as `sip={"rtp_timeout_s": 2}`, merged with `LOOPBACK`; `fresh`: the server creates
        its database and preset sounds itself, and is started by the installed command, not by a fork; `command`:
        a program that is started with `serve`, not a fork."""
        self.data_dir = folder / "data"
        if not fresh:
            copy_initial_data(self.data_dir)
        self.sip_port, self.api_port = free_port(), free_port()
        self.target = f"127.0.0.1:{self.sip_port}"
        self.origin = f"http://127.0.0.1:{self.api_port}"
        self.settings = merged(merged(LOOPBACK, settings), {"sip": {"port": self.sip_port}})
        self.settings = merged(self.settings, {"api": {"port": self.api_port}})
        self.environment = environment(self.data_dir, self.settings)
        self.log = JsonLines("the server")
        self.event = self.log.event
        self.secrets: set[str] = set()
        """Texts that must never be in the log."""
        self._folder = folder
        self._command = command or (TRUNKLINE if fresh else "")
        self._process: asyncio.subprocess.Process | ForkedServer | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def process(self) -> asyncio.subprocess.Process | ForkedServer:
        """The process that was started last."""
        assert self._process is not None, "not started"
        return self._process

    @property
    def serves(self) -> bool:
        """True from the start of the process to its end."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> dict[str, Any]:
        """Start the server, and wait until it is ready; returns the event `ready`. Kills it if it does not get
        ready."""
        since = self.log.mark()
        self.log.begin()
        self._process = await self._started()
        assert self._process.stderr is not None
        self._reading = asyncio.create_task(self.log.follow(self._process.stderr))
        if self not in Server.running:
            Server.running.append(self)
        try:
            return await self.event("ready", since=since, timeout_s=40)
        except BaseException:
            if self.serves:
                await self.kill()
            raise

    async def _started(self) -> asyncio.subprocess.Process | ForkedServer:
        if not self._command:
            return await forked_server.start(self._folder, self.environment)
        return await asyncio.create_subprocess_exec(
            self._command, "serve", cwd=self._folder, env=self.environment,
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def ended(self, timeout_s: float = 20) -> int:
        """Wait for the end of the process; returns its exit status."""
        async with asyncio.timeout(timeout_s):
            status = await self.process.wait()
            assert self._reading is not None
            await self._reading
        return status

    async def kill(self) -> None:
        """`kill -9`."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def close(self) -> None:
        """Stop the server at once, by two SIGINTs, and check its log and its home folder."""
        try:
            if self.serves:
                since = self.log.mark()
                self.signal(signal.SIGINT)
                with suppress(AssertionError, ProcessLookupError):  # it may have ended already
                    await self.event("draining", since=since)
                    self.signal(signal.SIGINT)  # two that come together are one
                await self.ended()
        except TimeoutError:
            await self.kill()
            raise
        finally:
            Server.running.remove(self)
        self.check_log()
        left = [path for path in (self._folder / "home").rglob("*") if not path.is_dir()]
        assert not left, "it writes nothing but its data"

    def check_log(self) -> None:
        """Assert that every line of the log is an event, and that none contains a secret."""
        strange = [line for line, event in zip(self.log.lines, self.log.events, strict=True) if not event]
        assert not strange, strange
        shown = [line for line in self.log.lines if any(secret in line for secret in self.secrets)]
        assert not shown, shown

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def key(self, organization: str = "office", max_calls: int | None = None) -> str:
        """Create an organization with an API key in the database; returns the key."""
        self.data_dir.mkdir(parents=True, exist_ok=True)

        def create(conn: sa.Connection) -> str:
            owner = organizations.create(conn, organization, max_calls=max_calls)
            return api_keys.create(conn, owner.id, requests_per_minute=100_000)[1]

        async with self.database() as database:
            text = await database.write(create)
        self.secrets.add(text)
        return text

    @asynccontextmanager
    async def database(self) -> AsyncIterator[Database]:
        """The server's database, also while it runs."""
        database = Database(f"sqlite+aiosqlite:///{self.data_dir / 'trunkline.db'}")
        await database.open()
        try:
            yield database
        finally:
            await database.close()


class Receiver:
    """A webhook receiver on loopback: keeps every request, and responds with 200 once `answers` is set."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self._by_call: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.answers = asyncio.Event()
        self.answers.set()
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/hook", self._take)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/hook"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def about(self, call_id: str, timeout_s: float = 20) -> tuple[dict[str, str], bytes]:
        """Wait for the first request about a call; returns its headers and body."""
        async with asyncio.timeout(timeout_s):
            await self._by_call[call_id].wait()
        return next(request for request in self.received if json.loads(request[1])["callId"] == call_id)

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.received.append((dict(request.headers), body))
        self._by_call[json.loads(body)["callId"]].set()
        await self.answers.wait()
        return web.Response()


async def command(
    *arguments: str, folder: Path, environment: Mapping[str, str], timeout_s: float = 40
) -> tuple[int, str, str]:
    """Run a command; returns exit status, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        TRUNKLINE, *arguments, cwd=folder, env=environment, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def until(holds: Callable[[], Any], timeout_s: float = 10, every_s: float = 0.02) -> None:
    """Poll until the condition is true, where no event reports it, such as for a file of another process."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "the condition did not become true"
        await asyncio.sleep(every_s)
