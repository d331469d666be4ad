"""Connection limit: a number per source, and a separate small number for all unknown sources."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore import _native
from sipcore.settings import EndpointSettings
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.native_harness import compile_native
from tests.sipcore.raw.raw_phone import RawPhone

SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=10, refuse_unknown=True)
PER_SOURCE, PER_UNKNOWN_SOURCE, OF_UNKNOWN_SOURCES = 64, 4, 64
a_call = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    sources = (
        "tests/sipcore/security/connection_limit_by_number.c",
        "sipcore/native/guard/connection_limit.c",
        "sipcore/native/net/ip_set.c",
    )
    return compile_native(tmp_path_factory.mktemp("connections"), *sources)


@pytest.fixture
def connections(library: ctypes.CDLL) -> ctypes.CDLL:
    library.clear()
    return library


def added(connections: ctypes.CDLL, sources: list[str], *, unknown: bool, first: int = 1) -> int:
    """The number of these connections that fit."""
    return sum(connections.add(first + number, source.encode(), unknown) for number, source in enumerate(sources))


def test_ipv6_prefix_of_64_bits_is_one_source(connections: ctypes.CDLL) -> None:
    assert added(connections, [f"2001:db8:1:2:{n:x}::1" for n in range(100)], unknown=False) == PER_SOURCE
    assert added(connections, ["2001:db8:1:3::1"], unknown=False, first=200) == 1
    assert added(connections, [f"192.0.2.{n}" for n in range(100)], unknown=False, first=300) == 100


def test_unknown_sources_have_a_limit_of_their_own(connections: ctypes.CDLL) -> None:
    assert added(connections, ["192.0.2.1"] * 10, unknown=True) == PER_UNKNOWN_SOURCE
    assert (
        added(connections, [f"198.51.100.{n}" for n in range(200)], unknown=True, first=100)
        == OF_UNKNOWN_SOURCES - PER_UNKNOWN_SOURCE
    )
    assert added(connections, ["192.0.2.1"] * 100, unknown=False, first=400) == PER_SOURCE


def test_source_whose_message_belongs_to_a_call_becomes_known(connections: ctypes.CDLL) -> None:
    sources = [f"198.51.100.{n}" for n in range(OF_UNKNOWN_SOURCES)]
    assert added(connections, sources, unknown=True) == OF_UNKNOWN_SOURCES
    connections.message_complete(1, 0)
    assert added(connections, ["192.0.2.1"], unknown=True, first=100) == 0
    connections.message_complete(1, 1)
    assert added(connections, ["192.0.2.1"], unknown=True, first=100) == 1


# ---- the endpoint, when it responds to unknown sources with 403 ----


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw
    _native.guard_message_timeout(10_000)
    phone.endpoint.log_guard_events()


async def connect(phone: Phone, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", phone.settings.port, local_addr=(host, 0))


async def read_until_closed(reader: asyncio.StreamReader) -> bytes:
    """The data received until the connection is closed."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while more := await asyncio.wait_for(reader.read(1000), 5):
            said += more
    return said


@a_call
async def test_unknown_sources_connection_is_closed_after_403(phone: Phone, raw: RawPhone) -> None:
    for method in ("OPTIONS", "INVITE"):
        reader, writer = await connect(phone, "127.0.0.9")
        writer.write(raw.request(method, raw.dialog(), via="TCP"))
        said = await read_until_closed(reader)
        assert said.startswith(b"SIP/2.0 403 ") and said.endswith(b"\r\n\r\n")
        writer.close()


@a_call
@pytest.mark.parametrize("said", ["ACK", "response", "nothing"])
async def test_messages_do_not_keep_an_unknown_sources_connection_open(phone: Phone, raw: RawPhone, said: str) -> None:
    _native.guard_message_timeout(300)
    reader, writer = await connect(phone, "127.0.0.9")
    request = raw.request("ACK", raw.dialog(), via="TCP")
    spelled = {"ACK": request, "response": b"SIP/2.0 200 OK\r\n" + request.split(b"\r\n", 1)[1], "nothing": b"\r\n"}
    writer.write(spelled[said])
    assert (await read_until_closed(reader)).strip() == b""
    writer.close()


@a_call
async def test_connections_of_unknown_sources_leave_room_for_known_ones(phone: Phone, raw: RawPhone) -> None:
    """As many unknown sources as there are entries in all."""
    _native.guard_message_timeout(10_000)
    held = [await connect(phone, f"127.0.{1 + number // 64}.{2 + number % 64}") for number in range(150)]
    reader, writer = await connect(phone, "127.0.0.1")
    writer.write(raw.request("OPTIONS", raw.dialog(), via="TCP"))
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).startswith(b"SIP/2.0 200 ")
    ended = [await asyncio.wait_for(read_until_closed(reader), 5) for reader, _ in held[OF_UNKNOWN_SOURCES:]]
    assert set(ended) == {b""}
    assert not any(reader.at_eof() for reader, _ in held[:OF_UNKNOWN_SOURCES])
    for _, each in (*held, (reader, writer)):
        each.close()
