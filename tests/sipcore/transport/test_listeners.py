"""The sockets that an endpoint listens on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from config.errors import StartupError
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings
from tests.peers.ports import free_port
from tests.sipcore.accelerated_endpoint import AcceleratedPhone
from tests.sipcore.raw.raw_phone import RawPhone


@contextlib.asynccontextmanager
async def listening(settings: EndpointSettings) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(settings, lambda leg: None)
    try:
        await endpoint.start()
        endpoint.set_sources(["127.0.0.1", "::1"])
        yield endpoint
    finally:
        await endpoint.close()


def is_taken(host: str, port: int, kind: socket.SocketKind) -> bool:
    """True if no other socket can bind this address and port."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind) as other:
        if other.family == socket.AF_INET6:
            other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            other.bind((host, port))
        except OSError:
            return True
        return False


def taken(port: int) -> set[tuple[str, str]]:
    """The loopback addresses that have that port in use, for UDP or TCP."""
    kinds = {"udp": socket.SOCK_DGRAM, "tcp": socket.SOCK_STREAM}
    places = itertools.product(("127.0.0.1", "127.0.0.2", "::1"), kinds)
    return {(host, name) for host, name in places if is_taken(host, port, kinds[name])}


@pytest.mark.parametrize(
    ("host", "tcp", "expected"),
    [
        ("127.0.0.1", True, {("127.0.0.1", "udp"), ("127.0.0.1", "tcp")}),
        ("127.0.0.1", False, {("127.0.0.1", "udp")}),
        ("::1", True, {("::1", "udp"), ("::1", "tcp")}),
        ("0.0.0.0", False, {("127.0.0.1", "udp"), ("127.0.0.2", "udp")}),
        ("::", True, set(itertools.product(("127.0.0.1", "127.0.0.2", "::1"), ("udp", "tcp")))),
    ],
)
async def test_listeners_are_bound_to_the_configured_host_only(
    host: str, tcp: bool, expected: set[tuple[str, str]]
) -> None:
    async with listening(EndpointSettings(host=host, port=free_port(), tcp=tcp, max_calls=2)) as endpoint:
        assert taken(endpoint.sip_port) == expected


@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
async def test_port_0_chooses_one_port_free_for_udp_and_tcp(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first port that the system chooses for UDP is in use for TCP."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken_port = other.getsockname()[1]
        monkeypatch.setattr("sipcore.transport.listeners._any_port", iter([taken_port, 0]).__next__)
        async with listening(EndpointSettings(host=host, port=0, max_calls=2)) as endpoint:
            assert endpoint.sip_port not in (0, taken_port)
            assert {("127.0.0.1", "udp"), ("127.0.0.1", "tcp")} <= taken(endpoint.sip_port)


async def test_configured_port_in_use_is_not_replaced() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port := free_port()))
        other.listen()
        with pytest.raises(StartupError, match=rf"^SIP port {port}/tcp on 127\.0\.0\.1 cannot be opened \("):
            async with listening(EndpointSettings(host="127.0.0.1", port=port, max_calls=2)):
                pass


async def test_peers_are_answered_on_their_ip_version() -> None:
    async with listening(EndpointSettings(host="::", port=0, max_calls=2)) as endpoint:
        for target, host in ((f"[::1]:{endpoint.sip_port}", "::1"), (f"127.0.0.1:{endpoint.sip_port}", "127.0.0.1")):
            async with RawPhone(target, host) as raw:
                assert (await raw.options()).status == 200


async def test_port_can_be_reopened_while_old_connections_linger() -> None:
    port = free_port()
    for _ in range(2):
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(listening(EndpointSettings(host="127.0.0.1", port=port, max_calls=2)))
            raw = await stack.enter_async_context(RawPhone(f"127.0.0.1:{port}"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(raw.request("OPTIONS", raw.dialog(), via="TCP"))
            assert (await reader.readline()).startswith(b"SIP/2.0 200 ")
        assert await reader.read() != b"", "the rest of the answer, then the end: the server has closed first"
        writer.close()


async def test_idle_connection_gets_keep_alives() -> None:
    """Every 90 s by the endpoint's clock, which is thirty times as fast (RFC 5626 3.5.1: a double CRLF)."""
    async with AcceleratedPhone.started() as phone, RawPhone(phone.target) as raw:
        reader, writer = await asyncio.open_connection(*phone.target.split(":"))
        writer.write(raw.request("OPTIONS", raw.dialog(), via="TCP"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"SIP/2.0 200 ")
        assert await asyncio.wait_for(reader.readexactly(4), 10) == b"\r\n\r\n"
        writer.close()
