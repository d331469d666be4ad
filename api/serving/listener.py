"""The API's listening socket: accepts connections within limits, by client and in total."""

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
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import Counter as Figure

from api.serving.http_server import IDLE_HEAD_S, BoundedAppRunner, HttpConnection, HttpServer
from config.errors import StartupError
from config.settings_tables import ApiSettings

SHUTDOWN_S: Final = 5.0
"""How long running requests may take to end when the port closes, seconds."""
BACKLOG: Final = 128
ACCEPT_RETRY_S: Final = 1.0
"""Pause after accept(2) failed, seconds."""
MAX_UNSENT: Final = 128 * 1024
"""Bytes of a response that the kernel holds beyond those in flight (TCP_NOTSENT_LOWAT)."""
LOG_EVERY_S: Final = 10.0
REFUSED: Final = Figure("trunkline_http_connections_refused_total", "HTTP connections over a bound, closed at once")

log = structlog.get_logger()


@asynccontextmanager
async def listen(app: web.Application, settings: ApiSettings) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port, which the system chooses for 0. Raises `StartupError` when the port
    is in use or the certificate does not load."""
    certificate = _certificate(settings)
    runner = BoundedAppRunner(app, settings, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        server = runner.server
        assert isinstance(server, HttpServer)
        listening = await _open_sockets(settings)
        async with _ConnectionAcceptor(server, settings, certificate).open(listening):
            yield int(listening[0].getsockname()[1])
    finally:
        await runner.cleanup()


def client_key(address: str) -> str:
    """Returns the client that an address counts for: an IPv4 address by itself, an IPv6 address by its /64."""
    parsed = ip_address(address.partition("%")[0])
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    return str(parsed if isinstance(parsed, IPv4Address) else ip_network((parsed, 64), strict=False))


class ConnectionLimits:
    """Counts open connections against a limit in total and a limit for each client."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._open: Counter[str] = Counter()

    def try_add(self, client: str) -> bool:
        """Count one more connection of this client; False, and nothing is counted, when a limit is reached."""
        if self._open.total() >= self._most or self._open[client] >= self._most_of_one:
            return False
        self._open[client] += 1
        return True

    def remove(self, client: str) -> None:
        """One connection of the client has ended."""
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]

    def count(self, client: str) -> int:
        """The client's open connections."""
        return self._open[client]

    def may_replace(self, client: str, other: str) -> bool:
        """True if an idle connection of `other` may be ended for one of `client`: of the client itself, or of one with
        more connections, unless the client has reached its limit."""
        mine = self._open[client]
        return client == other or mine < min(self._most_of_one, self._open[other])


@dataclass(frozen=True, eq=False)
class _OpenConnection:
    """A counted connection; times are those of the loop."""

    client: str
    connection: HttpConnection
    handshake: asyncio.Task[None]
    taken_at_s: float

    def idle_since_s(self, now_s: float) -> float | None:
        """None while it serves a request."""
        if self.connection.opened:
            return self.connection.idle_since_s(now_s)
        return self.taken_at_s if now_s - self.taken_at_s >= IDLE_HEAD_S else None

    def end(self) -> None:
        if self.connection.opened:
            self.connection.abort()
        else:
            self.handshake.cancel()


class _ConnectionAcceptor:
    """Accepts connections itself, so that connections over a limit, and those that never finish the TLS handshake, cost
    little."""

    def __init__(self, server: HttpServer, settings: ApiSettings, certificate: ssl.SSLContext | None) -> None:
        self._server = server
        self._settings = settings
        self._certificate = certificate
        self._admission = ConnectionLimits(settings.max_connections, settings.max_connections_per_address)
        self._tasks: set[asyncio.Task[None]] = set()
        self._places: dict[HttpConnection, _OpenConnection] = {}
        self._turned_away = 0
        self._told_at_s = -LOG_EVERY_S

    @asynccontextmanager
    async def open(self, listening: list[socket.socket]) -> AsyncIterator[None]:
        """Accept until the block ends. Closes the listening sockets; connections stay."""
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

    def _start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept_forever(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, (address, *_) = await loop.sock_accept(listening)
            except ConnectionError:
                continue  # gone before we came
            except OSError as error:
                log.error("api.accept_failed", error=_reason(error))
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            client = client_key(address)
            if self._admission.try_add(client) or (self._end_idle(client) and self._admission.try_add(client)):
                self._accept(connected, address, client)
            else:
                connected.close()
                self._log_refused(address)
            await asyncio.sleep(0)  # a flood of connections leaves time for everything else

    def _end_idle(self, client: str) -> bool:
        """End an idle connection of the client with the most connections, the one that has been idle for longest. False
        when there is none."""
        now_s = asyncio.get_running_loop().time()
        idle = [
            (self._admission.count(place.client), now_s - since_s, -number, place)
            for number, place in enumerate(self._places.values())
            if (since_s := place.idle_since_s(now_s)) is not None and self._admission.may_replace(client, place.client)
        ]
        place = next((place for *_, place in sorted(idle, reverse=True) if place.connection.all_sent()), None)
        if place is None:
            return False
        log.debug("api.idle_connection_ended", client=place.client, for_client=client)
        self._remove(place.connection)
        place.end()
        return True

    def _accept(self, connected: socket.socket, address: str, client: str) -> None:
        connection = self._server()
        connection.closed = partial(self._remove, connection)
        handshake = self._start(self._connect(connected, address, connection), "api connection")
        self._places[connection] = _OpenConnection(client, connection, handshake, asyncio.get_running_loop().time())

    def _remove(self, connection: HttpConnection) -> None:
        """Stop counting the connection: at once when it had to give way, and then not again when it has ended."""
        place = self._places.pop(connection, None)
        if place is not None:
            self._admission.remove(place.client)

    async def _connect(self, connected: socket.socket, address: str, connection: HttpConnection) -> None:
        """Hand the connection to the server, through the TLS handshake."""
        try:
            _limit_writing(connected, self._settings.write_timeout_s)
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
                self._remove(connection)
            elif connection not in self._places:
                connection.abort()  # it had to make room while its handshake ended

    def _log_refused(self, address: str) -> None:
        REFUSED.inc()
        self._turned_away += 1
        if time.monotonic() - self._told_at_s >= LOG_EVERY_S:
            self._told_at_s = time.monotonic()
            log.warning("api.connections_refused", count=self._turned_away, last=address)
            self._turned_away = 0


def _limit_writing(connected: socket.socket, timeout_s: float) -> None:
    """A client that reads nothing loses its connection, whatever protocol is on top; one that reads a little now and
    then does not. Unsent data waits in this process, where it is counted, and not in the kernel."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(timeout_s * 1000))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT)


async def _open_sockets(settings: ApiSettings) -> list[socket.socket]:
    """Returns a listening socket for each address of the host, all on the same port."""
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
    """The system's error text: asyncio adds its own words to it, but not for a host name that is not found."""
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
