"""PJSIP never looks up the host names of peers' messages: a resolver that hangs would block every call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.peers.certificate_authority import Authority
from tests.sipcore.accelerated_endpoint import AcceleratedPhone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.sipcore.raw.raw_tls import server_context, tls_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHIM = Path(__file__).with_name("hanging_resolver.c")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the names that the process looked up, one a line."""
    file = tmp_path_factory.mktemp("resolver") / "asked"
    file.touch()
    return file


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The trusted certificate authority."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def phone(asked: Path, authority: Authority) -> AsyncIterator[AcceleratedPhone]:
    """An endpoint in a process whose resolver hangs."""
    shim = asked.parent / "shim.so"
    compiler = await asyncio.create_subprocess_exec("cc", "-shared", "-fPIC", "-o", str(shim), str(SHIM), "-ldl")
    assert await compiler.wait() == 0
    launcher = ("env", f"LD_PRELOAD={shim}", f"ASKED={asked}")
    async with AcceleratedPhone.started(launcher, tls=["", "", str(authority.root)]) as phone:
        yield phone


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: AcceleratedPhone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


def looked_up(asked: Path) -> list[str]:
    return asked.read_text().split()


def accept(raw: RawPhone, request: Message) -> None:
    lines = [line for name in ("Via", "From", "To", "Call-ID", "CSeq") for line in request.headers(name)]
    raw.send("\r\n".join(["SIP/2.0 200 OK", *lines, "Content-Length: 0", "", ""]).encode())


def with_names(raw: RawPhone, message: bytes) -> bytes:
    """The message, with a host name in the place of each address of its sender."""
    return message.replace(f"<sip:raw@{raw.host}:{raw.sip.port}>".encode(), b"<sip:raw@pbx.hanging.example:5080>")


async def test_shim_records_lookups(asked: Path) -> None:
    shim = asked.parent / "own.so"
    program = "import socket; socket.getaddrinfo('localhost', 1); socket.getaddrinfo('127.0.0.1', 1)"
    compiler = await asyncio.create_subprocess_exec("cc", "-shared", "-fPIC", "-o", str(shim), str(SHIM), "-ldl")
    assert await compiler.wait() == 0
    own = asked.parent / "own"
    child = await asyncio.create_subprocess_exec("env", f"LD_PRELOAD={shim}", f"ASKED={own}", "python3", "-c", program)
    assert await child.wait() == 0
    assert looked_up(own) == ["localhost"]


async def test_start_makes_no_lookup(phone: AcceleratedPhone, asked: Path) -> None:
    assert looked_up(asked) == []


async def test_call_with_host_names_is_answered_and_ended_without_a_lookup(
    phone: AcceleratedPhone, raw: RawPhone, asked: Path
) -> None:
    route = ("Record-Route: <sip:proxy.hanging.example;lr>",)
    for headers in ((), route):
        dialog = raw.dialog()
        raw.send(with_names(raw, raw.request("INVITE", dialog, body=raw.offer("0"), headers=headers)))
        answer = await raw.final_response("INVITE")
        dialog.to, dialog.target = answer.header("To"), answer.header("Contact").strip("<>")
        raw.send(raw.request("ACK", dialog))
        assert (await raw.options()).status == 200
        phone.hang_up(dialog.call_id)
        while not (bye := await raw.next_message()).first_line.startswith("BYE"):
            pass
        accept(raw, bye)
        await phone.end_of(dialog.call_id)
    assert looked_up(asked) == []


async def test_response_with_a_host_name_in_via_is_handled_without_a_lookup(
    phone: AcceleratedPhone, raw: RawPhone, asked: Path
) -> None:
    via = f"Via: SIP/2.0/UDP {raw.host}:{raw.sip.port}"
    for method in ("OPTIONS", "INVITE"):
        request = raw.request(method, raw.dialog(), body=raw.offer("0") if method == "INVITE" else "")
        raw.send(request.replace(via.encode(), b"Via: SIP/2.0/UDP via.hanging.example;maddr=maddr.hanging.example"))
        raw.send(
            request.replace(via.encode(), b"Via: SIP/2.0/UDP via.hanging.example").replace(b"branch=", b"branch=2")
        )
    assert (await raw.options()).status == 200
    assert looked_up(asked) == []


async def test_call_to_an_unknown_name_fails_without_a_lookup(
    phone: AcceleratedPhone, raw: RawPhone, asked: Path
) -> None:
    phone.call("sip:100@nowhere.hanging.example")
    assert (await raw.options()).status == 200
    assert looked_up(asked) == []


async def test_callee_with_host_names_is_called_and_ended_without_a_lookup(
    phone: AcceleratedPhone, raw: RawPhone, asked: Path
) -> None:
    phone.call(f"sip:100@{raw.host}:{raw.sip.port}")
    callee = await RawCallee.wait_for_invite(raw)
    plain = raw.send
    named = b";received=received.hanging.example"
    raw.send = lambda data: plain(with_names(raw, data).replace(b";rport", b";rport" + named))  # type: ignore[method-assign]
    callee.answer()
    raw.send = plain  # type: ignore[method-assign]
    await callee.next_request("ACK")
    phone.hang_up(callee.dialog.call_id)
    accept(raw, await callee.next_request("BYE"))
    await phone.end_of(callee.dialog.call_id)
    assert looked_up(asked) == []


@pytest.mark.parametrize("registers", [True, False])
@pytest.mark.parametrize("named", ["trunk.hanging.example", "other.hanging.example"])
async def test_trunk_over_tls_is_verified_without_a_lookup(
    phone: AcceleratedPhone, raw: RawPhone, asked: Path, authority: Authority, registers: bool, named: str
) -> None:
    """Whether its certificate matches or not."""
    async with tls_server(server_context(authority.files(named, file=named))) as (port, connections):
        phone.add_trunk("trunk.hanging.example", port, registers=registers)
        connection = await asyncio.wait_for(connections.get(), 8)
        if named.startswith("trunk."):
            assert (await connection.next_message()).first_line.startswith("REGISTER" if registers else "OPTIONS")
        else:
            assert await connection.wait_closed()
        assert (await raw.options()).status == 200
    assert looked_up(asked) == []
