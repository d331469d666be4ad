"""The API's listening sockets: accept connections within limits for each client and in total."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import Counter

from api.serving.http_server import IDLE_HEAD_S, BoundedAppRunner, HttpConnection, HttpServer
from api.serving.server_certificate import ServerCertificate
from config.errors import StartupError
from config.settings_tables import ApiSettings

SHUTDOWN_S: Final = 5.0
"""Seconds for running requests to end when the port closes."""
BACKLOG: Final = 128
ACCEPT_RETRY_S: Final = 1.0
"""Seconds between a failure of accept(2) and the next attempt."""
MAX_UNSENT: Final = 128 * 1024
"""Bytes of a response that the kernel buffers beyond those in flight (TCP_NOTSENT_LOWAT)."""
LOG_EVERY_S: Final = 10.0
REFUSED: Final = Counter("trunkline_http_connections_refused_total", "HTTP connections over a limit, closed at once")

log = structlog.get_logger()


@asynccontextmanager
async def listen(
    app: web.Application, settings: ApiSettings, certificate: ServerCertificate | None = None
) -> AsyncIterator[int]:
    """Serve until the block ends; yields `port`, which the system chooses for 0. `certificate` is that of HTTPS, by
    default `tls_cert`. Raises `StartupError` if a port is in use or the certificate cannot be loaded."""
    certificate = certificate or await asyncio.to_thread(ServerCertificate.of_settings, settings)
    runner = BoundedAppRunner(app, settings, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        server = runner.server
        assert isinstance(server, HttpServer)
        listening = await _open_listeners(settings, certificate)
        async with _ConnectionAcceptor(server, settings).open(listening):
            yield int(listening[0].socket.getsockname()[1])
    finally:
        await runner.cleanup()


@dataclass(frozen=True)
class _Listener:
    """A listening socket, with the certificate if its connections use TLS."""

    socket: socket.socket
    certificate: ServerCertificate | None


def client_key(address: str) -> str:
    """Returns the client of an address, as limits count it: an IPv4 address itself, the /64 of an IPv6 address."""
    parsed = ip_address(address.partition("%")[0])
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    return str(parsed if isinstance(parsed, IPv4Address) else ip_network((parsed, 64), strict=False))


class ConnectionLimits:
    """Counts open connections against a limit in total and a limit for each client."""

    def __init__(self, max_total: int, max_per_client: int) -> None:
        self._max_total = max_total
        self._max_per_client = max_per_client
        self._total = 0
        self._open: defaultdict[str, int] = defaultdict(int)

    def try_add(self, client: str) -> bool:
        """Count one more connection of the client; returns False, and counts nothing, if a limit is reached."""
        if self._total >= self._max_total or self.count(client) >= self._max_per_client:
            return False
        self._total += 1
        self._open[client] += 1
        return True

    def remove(self, client: str) -> None:
        """Count one connection of the client less."""
        self._total -= 1
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]

    def count(self, client: str) -> int:
        """Returns the number of the client's open connections."""
        return self._open.get(client, 0)

    def may_replace(self, client: str, other: str) -> bool:
        """True if an idle connection of `other` may be ended for one of `client`: `other` is the client itself, or has
        more connections than the client, which has not reached its limit."""
        return client == other or self.count(client) < min(self._max_per_client, self.count(other))


@dataclass(frozen=True, eq=False)
class _OpenConnection:
    """A counted connection; times are those of the loop."""

    client: str
    connection: HttpConnection
    handshake: asyncio.Task[None]
    accepted_at_s: float

    def idle_since_s(self, now_s: float) -> float | None:
        """None while it serves a request, and in the first `IDLE_HEAD_S` of its handshake."""
        if self.connection.opened:
            return self.connection.idle_since_s(now_s)
        return self.accepted_at_s if now_s - self.accepted_at_s >= IDLE_HEAD_S else None

    def end(self) -> None:
        if self.connection.opened:
            self.connection.abort()
        else:
            self.handshake.cancel()


class _ConnectionAcceptor:
    """Accepts connections itself, so that connections over a limit, and those that never finish the TLS handshake, cost
    little."""

    def __init__(self, server: HttpServer, settings: ApiSettings) -> None:
        self._server = server
        self._settings = settings
        self._limits = ConnectionLimits(settings.max_connections, settings.max_connections_per_address)
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[HttpConnection, _OpenConnection] = {}
        self._unlogged_refusals = 0
        self._logged_at_s = -LOG_EVERY_S

    @asynccontextmanager
    async def open(self, listening: list[_Listener]) -> AsyncIterator[None]:
        """Accept until the block ends, then close the listening sockets; connections stay open."""
        for each in listening:
            self._start_task(self._accept_forever(each), "api port")
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            for each in listening:
                each.socket.close()

    def _start_task(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept_forever(self, listening: _Listener) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, (address, *_) = await loop.sock_accept(listening.socket)
            except ConnectionError:
                continue  # the client disconnected before accept(2)
            except OSError as error:
                log.error("api.accept_failed", error=_reason(error))
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            client = client_key(address)
            if self._limits.try_add(client) or (self._end_idle(client) and self._limits.try_add(client)):
                self._accept(connected, address, client, listening.certificate)
            else:
                connected.close()
                self._count_refused(address)
            await asyncio.sleep(0)  # other tasks run also during a flood of connections

    def _end_idle(self, client: str) -> bool:
        """End an idle connection of the client with the most connections, the one that has been idle for longest;
        returns False if there is none."""
        now_s = asyncio.get_running_loop().time()
        idle = [
            (self._limits.count(each.client), now_s - since_s, -number, each)
            for number, each in enumerate(self._open.values())
            if (since_s := each.idle_since_s(now_s)) is not None and self._limits.may_replace(client, each.client)
        ]
        longest_idle = next((each for *_, each in sorted(idle, reverse=True) if each.connection.is_all_sent()), None)
        if longest_idle is None:
            return False
        log.debug("api.idle_connection_ended", client=longest_idle.client, for_client=client)
        self._remove(longest_idle.connection)
        longest_idle.end()
        return True

    def _accept(
        self, connected: socket.socket, address: str, client: str, certificate: ServerCertificate | None
    ) -> None:
        connection = self._server()
        connection.on_close = partial(self._remove, connection)
        tls = None if certificate is None else certificate.context
        handshake = self._start_task(self._connect(connected, address, connection, tls), "api connection")
        self._open[connection] = _OpenConnection(client, connection, handshake, asyncio.get_running_loop().time())

    def _remove(self, connection: HttpConnection) -> None:
        """Stop counting the connection; it may have been removed already, for one of another client."""
        removed = self._open.pop(connection, None)
        if removed is not None:
            self._limits.remove(removed.client)

    async def _connect(
        self, connected: socket.socket, address: str, connection: HttpConnection, tls: ssl.SSLContext | None
    ) -> None:
        """Hand the connection to the server, through the TLS handshake."""
        try:
            _set_write_timeout(connected, self._settings.write_timeout_s)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                connected,
                ssl=tls,
                ssl_handshake_timeout=self._settings.head_timeout_s if tls else None,
            )
        except OSError as error:
            log.debug("api.handshake_failed", client=address, error=str(error))
        finally:
            if not connection.opened:
                self._remove(connection)
            elif connection not in self._open:
                connection.abort()  # it was ended for another client while its handshake completed

    def _count_refused(self, address: str) -> None:
        REFUSED.inc()
        self._unlogged_refusals += 1
        if time.monotonic() - self._logged_at_s >= LOG_EVERY_S:
            self._logged_at_s = time.monotonic()
            log.warning("api.connections_refused", count=self._unlogged_refusals, last=address)
            self._unlogged_refusals = 0


def _set_write_timeout(connected: socket.socket, timeout_s: float) -> None:
    """TCP_USER_TIMEOUT disconnects a client that reads nothing, with TLS and without; one that reads slowly stays
    connected. Unsent data waits in this process, where it is counted, and not in the kernel."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(timeout_s * 1000))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT)


async def _open_listeners(settings: ApiSettings, certificate: ServerCertificate | None) -> list[_Listener]:
    """Returns the listening sockets, those of `port` first."""
    sockets = await _open_sockets(settings.host, settings.port, "port")
    listening = [_Listener(each, certificate if settings.https_only else None) for each in sockets]
    if not settings.https_port:
        return listening
    try:
        if certificate is None:
            raise StartupError("[api] https_port has no certificate: set tls_cert and tls_key")
        secure = await _open_sockets(settings.host, settings.https_port, "https_port")
    except StartupError:
        for each in sockets:
            each.close()
        raise
    return listening + [_Listener(each, certificate) for each in secure]


async def _open_sockets(host: str, port: int, setting: str) -> list[socket.socket]:
    """Returns a listening socket for each address of the host, all on the same port."""
    opened: list[socket.socket] = []
    wanted = port
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(found):
            each = socket.create_server((str(address[0]), port), family=family, backlog=BACKLOG)
            each.setblocking(False)
            opened.append(each)
            port = each.getsockname()[1]
    except OSError as error:
        for each in opened:
            each.close()
        variable = f"TRUNKLINE_API__{setting.upper()}"
        raise StartupError(
            f"API port {wanted} on {host} cannot be opened ({_reason(error)}): "
            f"stop the program that uses it, or set [api] {setting} or host ({variable}, TRUNKLINE_API__HOST)"
        ) from error
    return opened


def _reason(error: OSError) -> str:
    """The system's error text, without the words that asyncio adds to it; for an unknown host name, the resolver's."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)
