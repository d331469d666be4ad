"""Who connects to the TLS port and is nobody's trunk is counted, told in the log and let go before a handshake."""

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
from tests.peers.sipp_baresip import free_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.raw.raw_tls import Connection, client_context
from tests.sipcore.security.test_source_guard import STRANGER, guard_lines

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["127.0.0.1", "::"])
async def phone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Phone]:
    files = Authority(tmp_path_factory.mktemp("tls")).files("localhost", "127.0.0.1")
    settings = EndpointSettings(codecs=("PCMU",), max_calls=20, tls_port=free_port(), tls=files)
    async with Phone(settings, request.param) as phone:
        yield phone


async def is_closed(phone: Phone, source: str = STRANGER, data: bytes = b"") -> bool:
    """Whether a connection of bytes is ended by the other side, which says nothing."""
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
    """OPTIONS over TLS is answered."""
    connection = await Connection.to(
        "127.0.0.1", phone.settings.tls_port, client_context(phone.settings.tls), source=source
    )
    async with RawPhone(phone.target) as raw:
        connection.writer.write(raw.request("OPTIONS", raw.dialog(), via="TLS"))
    answer = await connection.message()
    connection.close()
    return answer.status == 200


async def test_a_strangers_connection_is_closed_counted_and_told(phone: Phone) -> None:
    guard_lines(phone)
    before = source_guard.drop_counts()["unknown_source"]
    for data in (b"", b"\x16\x03\x01", b"OPTIONS sip:x SIP/2.0\r\n\r\n"):
        assert await is_closed(phone, data=data)
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await Connection.to("127.0.0.1", phone.settings.tls_port, client_context(phone.settings.tls), source=STRANGER)
    assert guard_lines(phone) == [("sip.unknown_source", STRANGER, 4)]
    assert source_guard.drop_counts()["unknown_source"] == before + 4
    assert await is_served(phone)
    assert guard_lines(phone) == []


async def test_who_becomes_known_is_served_at_once_and_who_is_no_more_is_not(phone: Phone) -> None:
    guard_lines(phone)
    phone.endpoint.set_sources(["127.0.0.1", STRANGER])
    assert await is_served(phone, STRANGER)
    assert await is_served(phone)
    phone.endpoint.set_sources(["127.0.0.1"], probes=[STRANGER])
    assert await is_served(phone, STRANGER)
    phone.endpoint.set_sources(["127.0.0.1"])
    assert await is_closed(phone)
    assert guard_lines(phone) == [("sip.unknown_source", STRANGER, 1)]


async def test_a_new_certificate_changes_nothing(phone: Phone) -> None:
    guard_lines(phone)
    for _ in range(3):
        await phone.endpoint.renew_certificate()
        assert await is_closed(phone)
        assert await is_served(phone)
    assert guard_lines(phone) == [("sip.unknown_source", STRANGER, 3)]


async def test_many_strangers_keep_no_trunk_out(phone: Phone) -> None:
    guard_lines(phone)
    opening = [asyncio.create_task(is_closed(phone)) for _ in range(200)]
    for _ in range(5):
        assert await is_served(phone)
    await asyncio.wait(opening, return_when=asyncio.FIRST_COMPLETED)
    for task in opening:
        task.cancel()
    await asyncio.gather(*opening, return_exceptions=True)
    [(event, source, count)] = guard_lines(phone)
    assert (event, source) == ("sip.unknown_source", STRANGER)
    assert 1 <= count <= 200


async def test_a_handshake_of_a_stranger_that_fails_is_told_where_all_may_begin_one(phone: Phone) -> None:
    """With `unknown_source = "403"` they are listened to."""
    _native.guard_policy(True, True, 10)
    try:
        guard_lines(phone)
        before = source_guard.drop_counts()["unknown_source"]
        port = phone.settings.tls_port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(STRANGER, 0))
        writer.write(b"OPTIONS sip:x SIP/2.0\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 5)
        writer.close()
        assert source_guard.drop_counts()["unknown_source"] == before + 1
    finally:
        phone.endpoint.set_accepting(True)
    phone.endpoint.log_guard_events()
    assert await is_closed(phone)
