"""A trunk that registers over TLS without a TLS listener: certificate checks, the Contact for inbound calls, and
reported failures."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.security.digest import Credentials
from sipcore.settings import EndpointSettings, TlsFiles
from sipcore.trunks import qualify, registration
from sipcore.trunks.trunk import Trunk
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.sipcore.raw.raw_tls import Connection, server_context, tls_server
from tests.sipcore.transport.test_tls import response_to
from tests.sipcore.trunks.test_registration_client import TrunkWatcher

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOST = "sip.carrier.test"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def phone(authority: Authority) -> AsyncIterator[Phone]:
    """Without a TLS port."""
    settings = EndpointSettings(codecs=("PCMU",), max_calls=4, tls=TlsFiles(authorities=authority.root))
    async with Phone(settings) as phone:
        yield phone


@pytest_asyncio.fixture(loop_scope="module")
async def watch(phone: Phone) -> AsyncIterator[TrunkWatcher]:
    watch = TrunkWatcher(phone)
    yield watch
    await phone.endpoint.set_trunks([])


async def register_at(watch: TrunkWatcher, port: int, **changes: Any) -> Trunk:
    """A trunk of the carrier whose server has this port."""
    watch.endpoint.set_host_table({SipHostPort(HOST, port, "tls"): [SipTarget("127.0.0.1", port, "tls")]})
    trunk = Trunk(
        key="first", host=HOST, port=port, transport="tls", outbound_proxy=None, user="ann",
        credentials=Credentials("ann", "s3cret"), registers=True, follow_redirects=False, accept_refer=False,
        qualify_s=0,
    )  # fmt: skip
    trunk = replace(trunk, **changes)
    await watch.endpoint.set_trunks([trunk])
    return trunk


async def read_until_closed(connections: asyncio.Queue[Connection]) -> bytes:
    """All data of the first connection, until it ends or is reset."""
    received, reader = b"", (await connections.get()).reader
    with suppress(ConnectionError):
        while chunk := await reader.read(4096):
            received += chunk
    return received


def accept(connection: Connection, request: Message) -> str:
    """Answer a REGISTER with 200; returns its own Contact."""
    contacts = [line.partition(": ")[2] for line in request.headers("Contact")]
    bound = [f"Contact: {each};expires=200" for each in contacts if not each.endswith(";expires=0")]
    connection.writer.write(response_to(request, "200 OK", *([] if request.header("Expires") == "0" else bound)))
    return contacts[0]


def contact_port(connection: Connection) -> str:
    """The part of a Contact that names the connection."""
    return f"127.0.0.1:{connection.writer.get_extra_info('peername')[1]};transport=TLS>"


@pytest.mark.parametrize(
    ("names", "days", "why"),
    [
        (["other.test"], (-1, 9), f"its certificate is for other.test, not for {HOST}"),
        (["127.0.0.1"], (-1, 9), f"its certificate is for 127.0.0.1, not for {HOST}"),
        (list("abcd"), (-1, 9), f"its certificate is for a, b, c, ..., not for {HOST}"),
        ([f"{'x' * 60}.{'y' * 60}.{'z' * 60}.test", "w" * 60 + ".test"], (-1, 9), "its certificate is for x"),
        ([], (-1, 9), f"its certificate is for test, not for {HOST}"),
        ([HOST], (-9, -1), "its certificate has expired or is not valid yet"),
    ],
)  # fmt: skip
async def test_registrar_without_a_matching_certificate_gets_no_register_and_fails(
    watch: TrunkWatcher, authority: Authority, names: list[str], days: tuple[float, float], why: str
) -> None:
    async with tls_server(server_context(authority.files(*names, days=days, file="carrier"))) as (port, connections):
        received = asyncio.create_task(read_until_closed(connections))
        await register_at(watch, port)
        detail = (await watch.until("failed")).detail or ""
        assert detail.startswith(f"no connection to 127.0.0.1: {why}")
        assert len(detail) < 300
        assert await received == b""


@pytest.mark.parametrize("name", ["Test authority", "Nobody"])
async def test_unknown_authority_is_reported_with_its_setting(watch: TrunkWatcher, tmp_path: Path, name: str) -> None:
    async with tls_server(server_context(Authority(tmp_path, name).files(HOST))) as (port, connections):
        received = asyncio.create_task(read_until_closed(connections))
        await register_at(watch, port)
        assert (await watch.until("failed")).detail == (
            "no connection to 127.0.0.1: its certificate is from an authority that is not trusted here ([sip] tls_ca)"
        )
        assert await received == b""


def send_greeting(writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.carrier.test\r\n")


def close_at_once(writer: asyncio.StreamWriter) -> None:
    writer.close()


@asynccontextmanager
async def plain_server(answers: Callable[[asyncio.StreamWriter], None]) -> AsyncIterator[int]:
    """A server's port."""
    server = await asyncio.start_server(lambda _, writer: answers(writer), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answers", "why"),
    [(send_greeting, "what answers there does not speak TLS"), (close_at_once, "it ended the connection")],
)
async def test_service_that_is_no_tls_is_reported(
    watch: TrunkWatcher, answers: Callable[[asyncio.StreamWriter], None], why: str
) -> None:
    async with plain_server(answers) as port:
        await register_at(watch, port)
        # PJSIP has OpenSSL's words for the first endpoint of a process only.
        detail = str((await watch.until("failed")).detail).replace("Unknown error 494267", why)
        details = {f"no connection to 127.0.0.1: {each}" for each in (why, "it ended the connection")}
        if answers is close_at_once:  # of a connection that is reset at once there may be nothing to tell
            details.add("no connection to 127.0.0.1")
        assert detail in details, "whichever error is first"


async def test_refused_connection_to_the_registrar_is_reported(watch: TrunkWatcher) -> None:
    await register_at(watch, free_port())
    detail = "no connection to 127.0.0.1"
    assert (await watch.until("failed")).detail in (detail, f"{detail}: nothing listens there")


async def test_registrar_that_requires_a_client_certificate_is_reported(
    watch: TrunkWatcher, authority: Authority
) -> None:
    context = server_context(authority.files(HOST, file="carrier"))
    context.verify_mode = ssl.CERT_REQUIRED
    async with tls_server(context) as (port, _):
        await register_at(watch, port)
        detail = (await watch.until("failed")).detail or ""
        assert detail.startswith("no connection to 127.0.0.1: ")


async def test_qualified_trunk_reports_the_same_failure(
    watch: TrunkWatcher, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_FIRST_DELAY_S", "RETRY_S"):
        monkeypatch.setattr(qualify, name, 0.05)
    async with tls_server(server_context(authority.files("other.test", file="carrier"))) as (port, connections):
        received = asyncio.create_task(read_until_closed(connections))
        await register_at(watch, port, registers=False, qualify_s=1)
        detail = (await watch.until("failed")).detail or ""
        assert detail.startswith("no connection to 127.0.0.1 since ")
        assert detail.endswith(f": its certificate is for other.test, not for {HOST}")
        assert await received == b""


async def test_contact_has_the_port_of_the_connection_and_a_lost_one_is_removed(
    watch: TrunkWatcher, phone: Phone, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "FIRST_RETRY_S", 0.2)
    async with tls_server(server_context(authority.files(HOST, file="carrier"))) as (port, connections):
        await register_at(watch, port)
        first = await connections.get()
        bound = accept(first, await first.next_message())
        assert bound.endswith(contact_port(first))
        await watch.until("registered")
        await assert_inbound_call(phone, first)

        first.close()
        second = await connections.get()
        request = await second.next_message()
        assert [line.partition(": ")[2] for line in request.headers("Contact")][1:] == [f"{bound};expires=0"]
        again = accept(second, request)
        assert again != bound and again.endswith(contact_port(second))
        await assert_inbound_call(phone, second)

        leaving = asyncio.create_task(phone.endpoint.set_trunks([]))
        request = await second.next_message()
        assert (request.header("Expires"), accept(second, request)) == ("0", again)
        await leaving


@pytest.mark.parametrize("credentials", [None, Credentials("ann", "s3cret")])
async def test_outbound_call_has_the_port_of_its_connection_in_contact(
    watch: TrunkWatcher, authority: Authority, credentials: Credentials | None
) -> None:
    async with tls_server(server_context(authority.files(HOST, file="carrier"))) as (port, connections):
        trunk = await register_at(watch, port, registers=False, credentials=credentials)
        leg = await watch.endpoint.call("200", trunk=trunk)
        connection = await connections.get()
        assert (await connection.next_message()).header("Contact").endswith(contact_port(connection))
        await leg.hangup()


async def assert_inbound_call(phone: Phone, connection: Connection) -> None:
    """An inbound call over the connection is answered with a Contact that names it."""
    async with RawPhone(phone.target) as raw:
        dialog = raw.dialog()
        connection.writer.write(raw.request("INVITE", dialog, body=raw.offer("0"), via="TLS"))
        leg = await phone.next_leg()
        answered = asyncio.create_task(leg.answer())
        while (answer := await connection.next_message()).status != 200:
            pass
        assert answer.header("Contact").endswith(contact_port(connection))
        dialog.to = answer.header("To")
        connection.writer.write(raw.request("ACK", dialog, via="TLS"))
        await answered
        dialog.cseq += 1
        connection.writer.write(raw.request("BYE", dialog, via="TLS"))
        await asyncio.wait_for(leg.ended, 5)
        assert (await connection.next_message()).header("CSeq").endswith("BYE")
        leg.release()


async def test_refresh_over_the_same_connection_binds_one_contact(
    watch: TrunkWatcher, phone: Phone, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "refresh_after_s", lambda expires_s: 0.1)
    async with tls_server(server_context(authority.files(HOST, file="carrier"))) as (port, connections):
        await register_at(watch, port)
        connection = await connections.get()
        bound = accept(connection, await connection.next_message())
        for _ in range(2):
            request = await connection.next_message()
            assert request.headers("Contact") == [f"Contact: {bound}"]
            accept(connection, request)
        leaving = asyncio.create_task(phone.endpoint.set_trunks([]))
        while (request := await connection.next_message()).header("Expires") != "0":
            accept(connection, request)
        accept(connection, request)
        await leaving


async def test_close_reason_of_one_connection_is_not_reported_for_the_next(
    watch: TrunkWatcher, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "FIRST_RETRY_S", 0.2)
    async with tls_server(server_context(authority.files(HOST, file="carrier"))) as (port, connections):
        await register_at(watch, port)
        connection = await connections.get()
        accept(connection, await connection.next_message())
        await watch.until("registered")
    connection.close()  # after the listener is closed
    assert (await watch.until("failed")).detail != "no connection to 127.0.0.1: it ended the connection"
