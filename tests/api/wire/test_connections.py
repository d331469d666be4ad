"""Limits of connections: their number, and their timeouts."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs
from structlog.typing import EventDict

from api.serving.listener import ConnectionLimits, client_key
from tests.api.wire.conftest import Live, Serve, Wire

SOON_S = 0.1
"""Seconds that suffice for what must happen before, also on a busy machine."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """TLS settings with a certificate of 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    created = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    pem, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(created.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, no_password))
    return {"tls_cert": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}


def _trust(certificate: dict[str, str]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate["tls_cert"])


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET", b"GET /v1/agents HTTP/1.1\r\nHost: x\r\n"])
async def test_a_head_that_does_not_come_in_time_ends_the_connection(serve: Serve, sent: bytes) -> None:
    live = await serve(head_timeout_s=SOON_S)
    wire = await live.connect()
    await wire.send(sent)
    assert await wire.ended()


async def test_a_head_that_trickles_gets_no_extra_time(serve: Serve) -> None:
    live = await serve(head_timeout_s=SOON_S)
    wire = await live.connect()
    await wire.send(b"GET /v1/agents HTTP/1.1\r\n")
    ended = asyncio.ensure_future(wire.ended())
    async with asyncio.timeout(10):
        while not ended.done():
            wire.writer.write(b"X: y\r\n")
            await asyncio.wait((ended,), timeout=SOON_S / 10)


async def test_the_head_of_a_later_request_has_to_come_in_time_too(serve: Serve) -> None:
    live = await serve(head_timeout_s=SOON_S)
    wire = await live.connect()
    assert (await wire.ask(live.head("GET", "/v1/agents"))).status == 200
    await wire.send(b"GET")
    assert await wire.ended()


async def test_an_idle_connection_is_closed(serve: Serve) -> None:
    live = await serve(idle_timeout_s=SOON_S)
    wire = await live.connect()
    assert (await wire.ask(live.head("GET", "/v1/agents"))).status == 200
    async with asyncio.timeout(live.api.services.settings.api.head_timeout_s / 2):
        assert await wire.ended()


async def test_a_running_request_is_neither_a_slow_head_nor_idle(serve: Serve) -> None:
    served = asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        await served.wait()
        return web.Response(text="done")

    live = await serve({"/slow": slow}, idle_timeout_s=SOON_S, head_timeout_s=SOON_S)
    wire, idle = await live.connect(), await live.connect()
    await wire.send(live.head("GET", "/slow"))
    assert await idle.ended()
    assert await (await live.connect()).ended()
    served.set()
    assert (await wire.answer()).body == b"done"


async def test_a_client_that_does_not_read_its_response_is_disconnected(serve: Serve) -> None:
    given_up = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(2**16))
        except ConnectionError:
            given_up.set()
            raise

    live = await serve({"/endless": endless}, write_timeout_s=0.3)
    wire = await live.connect(limit=2**10)
    await wire.send(live.head("GET", "/endless"))
    await given_up.wait()


def test_connections_are_limited_in_total_and_by_address() -> None:
    admission = ConnectionLimits(3, 2)
    assert [admission.try_add(each) for each in ("a", "a", "a", "b", "c")] == [True, True, False, True, False]
    admission.remove("a")
    assert [admission.try_add(each) for each in ("b", "c", "a")] == [True, False, False]


@dataclass
class Slow:
    """A route whose requests run until `let` is set."""

    asked: asyncio.Semaphore
    let: asyncio.Event

    async def handle(self, _request: web.Request) -> web.Response:
        self.asked.release()
        await self.let.wait()
        return web.Response(text="done")


@pytest.fixture
def slow() -> Iterator[Slow]:
    created = Slow(asyncio.Semaphore(0), asyncio.Event())
    yield created
    created.let.set()


async def _busy(live: Live, slow: Slow, address: str) -> Wire:
    wire = await live.connect(local_addr=(address, 0))
    await wire.send(live.head("GET", "/slow"))
    await slow.asked.acquire()
    return wire


async def _idle(live: Live, address: str) -> Wire:
    wire = await live.connect(local_addr=(address, 0))
    assert (await wire.ask(live.head("GET", "/v1/agents"))).status == 200
    return wire


async def test_one_address_cannot_take_all_connections(serve: Serve, slow: Slow) -> None:
    live = await serve({"/slow": slow.handle}, max_connections_per_address=2)
    with capture_logs() as logs:
        for _ in range(2):
            await _busy(live, slow, "127.0.0.1")
        assert [await (await live.connect()).ended() for _ in range(3)] == [True] * 3
    warned = [each for each in logs if each["event"] == "api.connections_refused"]
    assert [(each["count"], each["last"]) for each in warned] == [(1, "127.0.0.1")]
    await _idle(live, "127.0.0.2")


async def test_at_the_limit_the_client_with_most_connections_loses_its_longest_idle_one(
    serve: Serve, slow: Slow
) -> None:
    live = await serve({"/slow": slow.handle}, max_connections=5)
    other = await _idle(live, "127.0.0.3")
    busy = await _busy(live, slow, "127.0.0.2")
    idle = [await _idle(live, "127.0.0.2") for _ in range(3)]
    await asyncio.sleep(SOON_S)  # the last bytes have been received
    new = await _idle(live, "127.0.0.4")
    assert await idle[0].ended()
    for wire in (other, new, *idle[1:]):
        assert (await wire.ask(live.head("GET", "/v1/agents"))).status == 200
    slow.let.set()
    assert (await busy.answer()).body == b"done"


async def test_an_address_at_its_limit_loses_an_idle_connection_of_its_own(serve: Serve) -> None:
    live = await serve(max_connections_per_address=2)
    others = [await _idle(live, "127.0.0.2") for _ in range(2)]
    own = [await _idle(live, "127.0.0.3") for _ in range(2)]
    await asyncio.sleep(SOON_S)
    await _idle(live, "127.0.0.3")
    assert await own[0].ended()
    for wire in (own[1], *others):
        assert (await wire.ask(live.head("GET", "/v1/agents"))).status == 200


async def test_a_client_loses_no_idle_connection_to_one_with_as_many(serve: Serve, slow: Slow) -> None:
    live = await serve({"/slow": slow.handle}, max_connections=2)
    await _busy(live, slow, "127.0.0.2")
    idle = await _idle(live, "127.0.0.3")
    await asyncio.sleep(SOON_S)
    assert await (await live.connect(local_addr=("127.0.0.2", 0))).ended()
    assert (await idle.ask(live.head("GET", "/v1/agents"))).status == 200
    await asyncio.sleep(SOON_S)
    await _idle(live, "127.0.0.4")
    assert await idle.ended()


async def test_a_request_that_is_half_received_is_not_idle(serve: Serve) -> None:
    live = await serve(max_connections=1)
    wire, head = await _idle(live, "127.0.0.2"), live.head("GET", "/v1/agents")
    await wire.send(head[:10])
    await asyncio.sleep(SOON_S)
    assert await (await live.connect()).ended()
    assert (await wire.ask(head[10:])).status == 200


@pytest.mark.parametrize("tls", [False, True])
async def test_a_response_that_is_still_being_read_is_not_idle(
    serve: Serve, certificate: dict[str, str], tls: bool
) -> None:
    async def large(_request: web.Request) -> web.Response:
        return web.Response(body=bytes(60_000))

    live = await serve({"/large": large}, **(certificate if tls else {}), max_connections=1)
    with await asyncio.to_thread(_asked, live, "/large", _trust(certificate) if tls else None) as client:
        await asyncio.sleep(SOON_S)
        assert await (await live.connect()).ended()
        assert await asyncio.to_thread(_body_of, client, 60_000) == bytes(60_000)


def _asked(live: Live, path: str, trust: ssl.SSLContext | None) -> socket.socket:
    """A client that has sent a request and reads nothing yet."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.settimeout(10)
    client.connect(("127.0.0.1", live.port))
    if trust is not None:
        client = trust.wrap_socket(client, server_hostname="127.0.0.1")
    client.sendall(live.head("GET", path))
    return client


def _body_of(client: socket.socket, size: int) -> bytes:
    with client.makefile("rb") as file:
        while file.readline().strip():
            pass
        return file.read(size)


@pytest.mark.parametrize("sent", [b"", b"GET", "handshake"])
async def test_a_connection_without_a_prompt_head_is_idle(
    serve: Serve, certificate: dict[str, str], sent: bytes | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in ("api.serving.http_server.IDLE_HEAD_S", "api.serving.listener.IDLE_HEAD_S"):
        monkeypatch.setattr(where, SOON_S)
    tls = sent == "handshake"
    live = await serve(**(certificate if tls else {}), max_connections=1, head_timeout_s=60)
    silent = await live.connect()
    if isinstance(sent, bytes):
        await silent.send(sent)
    await _served_at_last(live, **({"ssl": _trust(certificate)} if tls else {}))
    assert await silent.ended()


def test_an_ipv4_address_is_a_client_and_so_is_an_ipv6_64() -> None:
    one = ["2001:db8::1", "2001:db8::ffff:0:0:2", "2001:db8:0:0:a::"]
    assert {client_key(each) for each in one} == {"2001:db8::/64"}
    assert client_key("2001:db8:0:1::1") == "2001:db8:0:1::/64"
    assert client_key("fe80::1%eth0") == "fe80::/64"
    assert {client_key(each) for each in ("192.0.2.1", "::ffff:192.0.2.1")} == {"192.0.2.1"}


async def test_a_connection_that_ends_is_no_longer_counted(serve: Serve) -> None:
    live = await serve(max_connections=1, head_timeout_s=SOON_S)
    first = await live.connect()
    assert (await first.ask(b"nonsense\r\n\r\n")).status == 400
    assert await first.ended()
    first.writer.close()
    await _served_at_last(live)


async def _served_at_last(live: Live, **how: Any) -> None:
    """Waits, because the server notices the end of a connection a moment later than its client."""
    async with asyncio.timeout(10):
        while True:
            try:
                wire = await live.connect(**how)
                assert (await wire.ask(live.head("GET", "/v1/agents"))).status == 200
                return
            except (ConnectionError, asyncio.IncompleteReadError):
                continue


async def test_running_out_of_file_descriptors_is_logged_and_accept_is_retried(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = asyncio.Event()

    def listening_for_it(_logger: object, _level: str, line: EventDict) -> EventDict:
        if line["event"] == "api.accept_failed":
            logged.set()
        return line

    monkeypatch.setattr("api.serving.listener.ACCEPT_RETRY_S", SOON_S)
    live = await serve()
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    client = socket.create_connection(("127.0.0.1", live.port))
    resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, usual[1]))
    try:
        with capture_logs(processors=[listening_for_it]):
            await logged.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    wire = await live.connect(sock=client)
    assert (await wire.ask(live.head("GET", "/v1/agents"))).status == 200


async def test_requests_work_over_tls(serve: Serve, certificate: dict[str, str]) -> None:
    live = await serve(**certificate)
    wire = await live.connect(ssl=_trust(certificate))
    answer = await wire.ask(live.head("GET", "/v1/agents"))
    assert (answer.status, answer.headers["strict-transport-security"]) == (200, "max-age=2592000")
    assert (await wire.ask(b"nonsense\r\n\r\n")).status == 400
    wire.writer.close()


async def test_a_tls_handshake_that_does_not_come_times_out_and_counts(
    serve: Serve, certificate: dict[str, str]
) -> None:
    live = await serve(**certificate, max_connections=1, head_timeout_s=SOON_S)
    silent = await live.connect()
    assert await (await live.connect()).ended()
    assert await silent.ended()


async def test_a_failed_tls_handshake_is_no_longer_counted(serve: Serve, certificate: dict[str, str]) -> None:
    live = await serve(**certificate, max_connections=1)
    with capture_logs() as logs:
        plain = await live.connect()
        await plain.send(live.head("GET", "/v1/agents"))
        await plain.ended()
        await _served_at_last(live, ssl=_trust(certificate))
    assert not [each for each in logs if each["log_level"] == "error"]
