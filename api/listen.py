"""Opens the HTTP port and takes connections, within bounds."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import Counter as Figure

from api.http_server import HttpServer, Runner
from config.errors import StartupError
from config.sections import ApiSettings

SHUTDOWN_S: Final = 5.0
"""How long running requests may take to end when the port closes, seconds."""
BACKLOG: Final = 128
WAIT_S: Final = 1.0
"""After the system would not give us another connection."""
MOST_UNSENT: Final = 128 * 1024
"""Bytes that the system holds of an answer beyond those that are on their way."""
TELL_EVERY_S: Final = 10.0
REFUSED: Final = Figure("trunkline_http_connections_refused_total", "HTTP connections over a bound, closed at once")

log = structlog.get_logger()


@asynccontextmanager
async def listen(app: web.Application, settings: ApiSettings) -> AsyncIterator[int]:
    """Serve until the block ends; gives the port (that of the system's choice for 0). `StartupError` when the port is
    taken or the certificate does not load."""
    certificate = _certificate(settings)
    runner = Runner(app, settings, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        server = runner.server
        assert isinstance(server, HttpServer)
        listening = await _opened(settings)
        async with _Door(server, settings, certificate).open(listening):
            yield int(listening[0].getsockname()[1])
    finally:
        await runner.cleanup()


class Admission:
    """Who is connected: so many in all, so many from one address."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Whether one more of this address may connect; if so, it is counted until it leaves."""
        if self._open.total() >= self._most or self._open[address] >= self._most_of_one:
            return False
        self._open[address] += 1
        return True

    def leave(self, address: str) -> None:
        """One connection of the address has ended."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class _Door:
    """Accepts connections itself, so that those over a bound, and those that never finish the TLS handshake, do not
    get far."""

    def __init__(self, server: HttpServer, settings: ApiSettings, certificate: ssl.SSLContext | None) -> None:
        self._server = server
        self._settings = settings
        self._certificate = certificate
        self._admission = Admission(settings.max_connections, settings.max_connections_per_address)
        self._tasks: set[asyncio.Task[None]] = set()
        self._turned_away = 0
        self._told_at_s = -TELL_EVERY_S

    @asynccontextmanager
    async def open(self, listening: list[socket.socket]) -> AsyncIterator[None]:
        """Accept until the block ends. Closes the sockets; connections stay."""
        for each in listening:
            self._start(self._accept_forever(each), "api port")
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            for each in listening:
                each.close()

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept_forever(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, (address, *_) = await loop.sock_accept(listening)
            except ConnectionError:
                continue  # gone before we came
            except OSError as error:
                log.error("api.accept_failed", error=_reason(error))
                await asyncio.sleep(WAIT_S)
                continue
            if self._admission.enter(address):
                self._start(self._connect(connected, address), "api connection")
            else:
                connected.close()
                self._tell_turned_away(address)
            await asyncio.sleep(0)  # a flood of connections leaves time for everything else

    async def _connect(self, connected: socket.socket, address: str) -> None:
        """Hand the connection to the server, through the TLS handshake."""
        connection = self._server()
        connection.closed = partial(self._admission.leave, address)
        try:
            _bound_writing(connected, self._settings.write_timeout_s)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                connected,
                ssl=self._certificate,
                ssl_handshake_timeout=self._settings.head_timeout_s if self._certificate else None,
            )
        except OSError as error:
            log.debug("api.handshake_failed", client=address, error=str(error))
        finally:
            if not connection.opened:
                self._admission.leave(address)

    def _tell_turned_away(self, address: str) -> None:
        REFUSED.inc()
        self._turned_away += 1
        if time.monotonic() - self._told_at_s >= TELL_EVERY_S:
            self._told_at_s = time.monotonic()
            log.warning("api.connections_refused", count=self._turned_away, last=address)
            self._turned_away = 0


def _bound_writing(connected: socket.socket, timeout_s: float) -> None:
    """A client that takes nothing of its answer ends the connection, whatever is on top of it; one that takes a little
    now and then does not. What it has not been sent yet waits here, where it is counted, and not in the system."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(timeout_s * 1000))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MOST_UNSENT)


async def _opened(settings: ApiSettings) -> list[socket.socket]:
    """A listening socket for each address of the host, on the same port."""
    opened: list[socket.socket] = []
    port = settings.port
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            settings.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(found):
            each = socket.create_server((str(address[0]), port), family=family, backlog=BACKLOG)
            each.setblocking(False)
            opened.append(each)
            port = each.getsockname()[1]
    except OSError as error:
        for each in opened:
            each.close()
        raise StartupError(
            f"API port {settings.port} on {settings.host} cannot be opened ({_reason(error)}): "
            "stop the program that uses it, or set [api] port or host (TRUNKLINE_API__PORT, TRUNKLINE_API__HOST)"
        ) from error
    return opened


def _reason(error: OSError) -> str:
    """In the system's words; asyncio puts its own around them, and around a name that is not found none."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def _certificate(settings: ApiSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:
        raise StartupError(f"api.tls_cert {settings.tls_cert} with api.tls_key: {error}") from error
    return context
