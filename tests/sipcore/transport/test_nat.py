"""Behind NAT: peers outside get the public address, peers inside our own."""

from __future__ import annotations

import asyncio
import re
from ipaddress import ip_network

import pytest
from structlog.testing import capture_logs

from sipcore.dialogs.invite_error import InviteError
from sipcore.messages.headers import NameAddr
from sipcore.security.digest import Credentials
from sipcore.settings import EndpointSettings
from sipcore.trunks.trunk import Trunk
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST = "0.0.0.0"
PUBLIC = "203.0.113.7"
SETTINGS = EndpointSettings(
    codecs=("PCMU",), max_calls=10, public_address=PUBLIC, local_networks=(ip_network("127.0.0.2/32"),)
)
SIDES = pytest.mark.parametrize(("peer", "address"), [("127.0.0.1", PUBLIC), ("127.0.0.2", "127.0.0.1")])


@pytest.fixture(autouse=True)
def known_sources(phone: Phone) -> None:
    phone.endpoint.set_sources(["127.0.0.1", "127.0.0.2"])


def addresses_in(sdp: str) -> set[str]:
    """All addresses in an SDP."""
    return set(re.findall(r"IN IP[46] (\S+)", sdp))


def contact_host(message: Message) -> str:
    return message.header("Contact").split("@")[1].split(":")[0]


@SIDES
async def test_inbound_call_gets_the_address_of_its_side_of_the_nat(phone: Phone, peer: str, address: str) -> None:
    async with RawPhone(phone.target, peer) as raw:
        dialog = raw.dialog()
        raw.invite(dialog, raw.offer("0"))
        leg = await phone.next_leg()
        answering = asyncio.create_task(leg.answer())
        answer = await raw.complete_invite(dialog)
        await answering
        dialog.cseq += 1
        dialog.target = f"sip:100@127.0.0.1:{phone.settings.port}"  # this machine does not have the public address
        raw.invite(dialog, raw.offer("0"))
        again = await raw.final_response("INVITE")
        raw.send(raw.request("ACK", dialog))
        await leg.hangup()
        bye = await raw.next_message()
        while not bye.first_line.startswith("BYE "):
            bye = await raw.next_message()
        leg.release()
    for message in (answer, again):
        assert contact_host(message) == address
        assert addresses_in(message.body) == {address}
    assert f" {address}:{phone.settings.port};" in bye.header("Via")


@pytest.mark.parametrize("transport", ["udp", "tcp"])
@SIDES
async def test_outbound_call_has_the_address_of_its_side_of_the_nat(
    phone: Phone, peer: str, address: str, transport: str
) -> None:
    async with RawPhone(phone.target, peer) as raw:
        if transport == "tcp":
            invite = await invite_over_tcp(phone, peer)
        else:
            leg = await phone.endpoint.call(f"sip:1@{peer}:{raw.sip.port}", caller=NameAddr("100", ""))
            callee = await RawCallee.wait_for_invite(raw)
            callee.reject("486 Busy Here")
            ack = await callee.next_request("ACK")
            await leg.ended
            invite = callee.invite
            assert ack.header("Via") == invite.header("Via")
    assert invite.header("Via").split()[1].startswith(f"{address}:")
    assert contact_host(invite) == address
    assert f"<sip:100@{address}>" in invite.header("From")
    assert addresses_in(invite.body) == {address}


async def invite_over_tcp(phone: Phone, peer: str) -> Message:
    messages: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        messages.put_nowait(await reader.readuntil(b"\r\n\r\n") + await reader.read(2000))
        writer.close()

    server = await asyncio.start_server(take, peer, 0)
    port = server.sockets[0].getsockname()[1]
    leg = await phone.endpoint.call(f"sip:1@{peer}:{port};transport=tcp", caller=NameAddr("100", ""))
    data = (await asyncio.wait_for(messages.get(), 5)).decode()
    await leg.hangup()
    server.close()
    head, _, body = data.partition("\r\n\r\n")
    return Message(head.split("\r\n", 1)[0], head.replace("\r\n", "\n"), body)


@SIDES
async def test_registration_has_the_address_of_its_side_of_the_nat(phone: Phone, peer: str, address: str) -> None:
    async with RawPhone(phone.target, peer) as registrar:
        trunk = Trunk(
            f"at {peer}", peer, registrar.sip.port, "udp", None, "ann", Credentials("ann", "secret"),
            registers=True, follow_redirects=False, accept_refer=False, qualify_s=0,
        )  # fmt: skip
        registered = asyncio.Event()
        with capture_logs() as logs:
            phone.endpoint.on_trunk_status = lambda _, status: (
                registered.set() if status.state == "registered" else None
            )
            await phone.endpoint.set_trunks([trunk])
            request = await registrar.next_message()
            assert request.first_line.startswith("REGISTER ")
            registrar.send(accept_register(request))
            await asyncio.wait_for(registered.wait(), 5)
            leaving = asyncio.create_task(phone.endpoint.set_trunks([]))
            request_2 = await registrar.next_message()
            registrar.send(accept_register(request_2))
            await leaving
    assert contact_host(request) == contact_host(request_2) == address
    assert request.header("Via").split()[1].startswith(f"{address}:")
    assert "trunk.registered" in [line["event"] for line in logs]


def accept_register(request: Message) -> bytes:
    """200 to a REGISTER: its binding for 200 s, among other bindings."""
    copied = [line for name in ("Via", "From", "Call-ID", "CSeq") for line in request.headers(name)]
    bindings = (
        f"Contact: <sip:other@192.0.2.9>;expires=50, {request.header('Contact').partition(';expires')[0]};expires=200"
    )
    lines = ["SIP/2.0 200 OK", *copied, f"To: {request.header('To')};tag=r", bindings, "Content-Length: 0"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def test_call_without_a_route_raises_invite_error(phone: Phone) -> None:
    with pytest.raises(InviteError, match="no INVITE could be sent") as caught:
        await phone.endpoint.call("sip:x@[2001:db8::1]:5060", caller=NameAddr("100", ""))
    assert caught.value.kind == "no_local_address"
    assert phone.endpoint.live_legs == 0
