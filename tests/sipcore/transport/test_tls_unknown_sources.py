"""Unknown sources that connect to the TLS port are counted, logged and closed before a handshake."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore import _native
from sipcore.security import source_guard
from sipcore.settings import EndpointSettings
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.raw.raw_tls import Connection, client_context
from tests.sipcore.security.test_source_guard import UNKNOWN_SOURCE, guard_log_lines

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["127.0.0.1", "::"])
async def phone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Phone]:
    files = Authority(tmp_path_factory.mktemp("tls")).files("localhost", "127.0.0.1")
    settings = EndpointSettings(codecs=("PCMU",), max_calls=20, tls_port=free_port(), tls=files)
    async with Phone(settings, request.param) as phone:
        yield phone


async def is_closed(phone: Phone, source: str = UNKNOWN_SOURCE, data: bytes = b"") -> bool:
    """True if the peer closes a plain connection, without data."""
    port = phone.settings.tls_port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(data)
    got = b""
    with contextlib.suppress(ConnectionError):
        got = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return got == b""


async def is_served(phone: Phone, source: str = "127.0.0.1") -> bool:
    """True if OPTIONS over TLS is answered."""
    connection = await Connection.connect(
        "127.0.0.1", phone.settings.tls_port, client_context(phone.settings.tls), source=source
    )
    async with RawPhone(phone.target) as raw:
        connection.writer.write(raw.request("OPTIONS", raw.dialog(), via="TLS"))
    answer = await connection.next_message()
    connection.close()
    return answer.status == 200


async def test_unknown_sources_tls_connection_is_closed_counted_and_logged(phone: Phone) -> None:
    guard_log_lines(phone)
    before = source_guard.drop_counts()["unknown_source"]
    for data in (b"", b"\x16\x03\x01", b"OPTIONS sip:x SIP/2.0\r\n\r\n"):
        assert await is_closed(phone, data=data)
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await Connection.connect(
            "127.0.0.1", phone.settings.tls_port, client_context(phone.settings.tls), source=UNKNOWN_SOURCE
        )
    assert guard_log_lines(phone) == [("sip.unknown_source", UNKNOWN_SOURCE, 4)]
    assert source_guard.drop_counts()["unknown_source"] == before + 4
    assert await is_served(phone)
    assert guard_log_lines(phone) == []


async def test_change_of_sources_applies_to_tls_at_once(phone: Phone) -> None:
    guard_log_lines(phone)
    phone.endpoint.set_sources(["127.0.0.1", UNKNOWN_SOURCE])
    assert await is_served(phone, UNKNOWN_SOURCE)
    assert await is_served(phone)
    phone.endpoint.set_sources(["127.0.0.1"], probes=[UNKNOWN_SOURCE])
    assert await is_served(phone, UNKNOWN_SOURCE)
    phone.endpoint.set_sources(["127.0.0.1"])
    assert await is_closed(phone)
    assert guard_log_lines(phone) == [("sip.unknown_source", UNKNOWN_SOURCE, 1)]


async def test_reload_keeps_the_accept_filter(phone: Phone) -> None:
    guard_log_lines(phone)
    for _ in range(3):
        await phone.endpoint.reload_certificate()
        assert await is_closed(phone)
        assert await is_served(phone)
    assert guard_log_lines(phone) == [("sip.unknown_source", UNKNOWN_SOURCE, 3)]


async def test_many_unknown_sources_do_not_block_a_trunk(phone: Phone) -> None:
    guard_log_lines(phone)
    opening = [asyncio.create_task(is_closed(phone)) for _ in range(200)]
    for _ in range(5):
        assert await is_served(phone)
    await asyncio.wait(opening, return_when=asyncio.FIRST_COMPLETED)
    for task in opening:
        task.cancel()
    await asyncio.gather(*opening, return_exceptions=True)
    [(event, source, count)] = guard_log_lines(phone)
    assert (event, source) == ("sip.unknown_source", UNKNOWN_SOURCE)
    assert 1 <= count <= 200


async def test_failed_handshake_of_an_unknown_source_is_logged_with_403(phone: Phone) -> None:
    """With `unknown_source = "403"` their connections are accepted."""
    _native.guard_policy(True, True, 10)
    try:
        guard_log_lines(phone)
        before = source_guard.drop_counts()["unknown_source"]
        port = phone.settings.tls_port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(UNKNOWN_SOURCE, 0))
        writer.write(b"OPTIONS sip:x SIP/2.0\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 5)
        writer.close()
        assert source_guard.drop_counts()["unknown_source"] == before + 1
    finally:
        phone.endpoint.set_accepting(True)
    phone.endpoint.log_guard_events()
    assert await is_closed(phone)
