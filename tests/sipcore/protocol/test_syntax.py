"""The spellings of a message that RFC 3261 allows: compact, folded, in pieces, through proxies, with odd addresses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg
from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import assert_audio_flows, place_call, wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone, parse

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40)
COMPACT = {
    "Via": "v", "From": "f", "To": "t", "Call-ID": "i", "Contact": "m", "Content-Type": "c", "Content-Length": "l",
    "Supported": "k", "Subject": "s",
}  # fmt: skip


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


def respelled(request: bytes, *changes: tuple[str, str]) -> bytes:
    """A request with its head spelled in another way; each change must apply."""
    head, blank, body = request.partition(b"\r\n\r\n")
    text = head.decode()
    for pattern, instead in changes:
        text, found = re.subn(pattern, instead, text, flags=re.MULTILINE)
        assert found, pattern
    return text.encode() + blank + body


async def make_call(phone: Phone, raw: RawPhone, invite: bytes, dialog: Dialog) -> Leg:
    """Send an INVITE, be answered, talk, hang up; returns its leg."""
    raw.send(invite)
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.complete_invite(dialog)
    await assert_audio_flows(phone, raw, await answering)
    await raw.bye(dialog)
    await wait_ended(leg)
    return leg


CONTACT = r'Contact: "a, <b>; c" <\1;ob;x=%22y?P=1>;+sip.instance="<urn:uuid:0>";q=0.7;expires=60'
VIA = r"\1, SIP/2.0/TCP [2001:db8::9]:5060;branch=z9hG4bKabc;received=2001:db8::8"
FROM = r'From: "\"a\" <sip:x@y>;tag=no" <\1;user=phone>;x="tag=no"'
SPELLINGS = {
    "compact": [(rf"^{name}:", f"{short}:") for name, short in COMPACT.items()],
    "folded": [(r"^(From|To|Call-ID|CSeq): ", r"\1:\r\n\t "), (r";branch=", "\r\n ;branch=")],
    "spaced": [(r"^(From|To|Contact|CSeq): ", r"\1  \t:   "), (r";tag=", " ; tag = "), (r"1 INVITE", r"0001   INVITE")],
    "cased": [(r"^From:", "fRoM:"), (r"^Call-ID:", "CALL-ID:"), (r"SIP/2.0/UDP", "sip/2.0/udp"), (r"sip:", "SIP:")],
    "with an unknown header": [(r"^Subject:", 'Unknown: x\r\nX-Y-Z: "; , <\r\nSubject:')],
    "with an odd Contact": [(r"^Contact: <(.*)>", CONTACT)],
    "with a bare Contact": [(r"^Contact: <(.*)>", r"Contact: \1")],
    "with an odd Via": [(r";rport", ';rport;ttl=1;maddr=127.0.0.1;keep;alias;x="y;z"')],
    "with a second Via": [(r"^(Via: [^\r]*)", VIA)],
    "with an odd From": [(r"^From: .*?<(.*)>", FROM)],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_call_is_served_in_every_valid_spelling(phone: Phone, raw: RawPhone, spelling: str) -> None:
    dialog = raw.dialog()
    invite = raw.request("INVITE", dialog, body=raw.offer("0"), headers=("Supported: timer", "Subject: hello"))
    leg = await make_call(phone, raw, respelled(invite, *SPELLINGS[spelling]), dialog)
    assert (leg.sip_call_id, leg.facts.request_user, leg.facts.to_addr.user) == (dialog.call_id, "100", "100")
    assert leg.facts.from_addr.user == "raw"


@pytest.mark.parametrize(
    ("uri", "user"),
    [
        ("tel:+49-30-100;phone-context=example.com", "+49-30-100"),
        ("sip:+4930100;isub=1;ext=2@127.0.0.1;user=phone", "+4930100"),
        ("sip:100:secret@127.0.0.1;x=1?Subject=hi", "100"),
        ("sip:%31%30%30@127.0.0.1:5060;transport=udp;lr;method=INVITE", "100"),
        ("sip:100@[::1]:5060", "100"),
        ("sip:100@[2001:db8::1]", "100"),
        ("sip:$user_+-.!~*'()&=@127.0.0.1", "$user_+-.!~*'()&="),
        ("sip:127.0.0.1", ""),
    ],
)
async def test_callee_is_read_from_any_uri(phone: Phone, raw: RawPhone, uri: str, user: str) -> None:
    dialog = raw.dialog()
    dialog.target = uri
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    await leg.reject(486)
    assert (await raw.final_response("INVITE")).status == 486
    assert leg.facts.request_user == user
    await wait_ended(leg)


async def test_sips_uri_over_udp_is_rejected(phone: Phone, raw: RawPhone) -> None:
    """RFC 5630 3.1.1."""
    dialog = raw.dialog()
    dialog.target = "sips:100@127.0.0.1"
    raw.invite(dialog, raw.offer("0"))
    refused = await raw.final_response("INVITE")
    assert (refused.status, refused.header("Warning").split()[0]) == (480, "381")
    assert (await raw.options()).status == 200
    assert phone.incoming.empty()


@pytest.mark.parametrize(
    "name", ["Zoë Müller", "Анна", "田中 花子", "مرحبا", 'O\\\'Neil, \\"the\\" \\\\ boss', "🙂", "a;b,c<d>e"]
)
async def test_display_name_in_any_script_is_read(phone: Phone, raw: RawPhone, name: str) -> None:
    dialog = raw.dialog()
    invite = raw.request("INVITE", dialog, body=raw.offer("0"))
    raw.send(invite.replace(b'"Raw \\"phone\\""', f'"{name}"'.encode()))
    leg = await phone.next_leg()
    await leg.reject(486)
    refused = await raw.final_response("INVITE")
    assert leg.facts.from_addr.display_name == re.sub(r"\\(.)", r"\1", name)
    assert f'"{name}"' in refused.header("From"), "as it came"
    await wait_ended(leg)


async def test_requests_within_a_call_use_its_route_set(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 12.1.1 and 12.2.1.1: loose routers."""
    dialog = raw.dialog()
    here = f"127.0.0.1:{raw.sip.port}"
    recorded = (f"Record-Route: <sip:{here};lr;id=1>, <sip:10.255.255.1;lr>", "Record-Route: <sip:far.example;lr>")
    raw.invite(dialog, raw.offer("0"), recorded)
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    answer = await raw.complete_invite(dialog)
    await answering
    assert [", ".join(answer.headers("Record-Route")).count(part) for part in ("id=1", "10.255", "far.example")] == [
        1
    ] * 3
    hanging_up = asyncio.create_task(leg.hangup())
    bye = await raw.next_request("BYE")
    raw.reply(bye, "200 OK")
    await hanging_up
    routes = re.findall(r"<([^>]*)>", " ".join(bye.headers("Route")))
    assert routes == [f"sip:{here};lr;id=1", "sip:10.255.255.1;lr", "sip:far.example;lr"]
    assert bye.first_line == f"BYE sip:raw@{here} SIP/2.0"
    await wait_ended(leg)


async def test_strict_router_gets_its_own_uri_as_request_uri(phone: Phone, raw: RawPhone) -> None:
    """RFC 3261 12.2.1.1: strict routers, as in RFC 2543."""
    dialog = raw.dialog()
    here = f"127.0.0.1:{raw.sip.port}"
    raw.invite(dialog, raw.offer("0"), (f"Record-Route: <sip:old@{here}>",))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    await raw.complete_invite(dialog)
    await answering
    hanging_up = asyncio.create_task(leg.hangup())
    bye = await raw.next_request("BYE")
    raw.reply(bye, "200 OK")
    await hanging_up
    assert bye.first_line == f"BYE sip:old@{here} SIP/2.0"
    assert bye.header("Route") == f"<sip:raw@{here}>"
    await wait_ended(leg)


async def test_record_route_of_the_callees_proxy_is_used(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    here = f"127.0.0.1:{raw.sip.port}"
    callee.answer(None, f"Record-Route: <sip:second@{here};lr>, <sip:first@{here};lr>")
    ack = await callee.next_request("ACK")
    hanging_up = asyncio.create_task(leg.hangup())
    bye = await callee.next_request("BYE")
    callee.accept(bye)
    await hanging_up
    for request in (ack, bye):
        routes = re.findall(r"<sip:(\w+)@", " ".join(request.headers("Route")))
        assert routes == ["first", "second"], "a callee sees them the other way round"
    await wait_ended(leg)


async def test_response_is_sent_to_the_source_with_rport(phone: Phone, raw: RawPhone) -> None:
    """RFC 3581: a caller behind NAT does not know its public address."""
    request = raw.request("OPTIONS", raw.dialog())
    raw.send(respelled(request, (r"^Via: SIP/2.0/UDP [^;]*", "Via: SIP/2.0/UDP 10.255.0.1:5062")))
    answer = await raw.final_response("OPTIONS")
    assert f"rport={raw.sip.port}" in answer.header("Via")
    assert "received=127.0.0.1" in answer.header("Via")


class Stream:
    """A connection on which messages may be cut and joined at any byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def opened(cls, phone: Phone) -> Stream:
        host, port = phone.target.split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def message(self) -> Message:
        """The next message."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 5)
        length = re.search(rb"^(?:Content-Length|l): *(\d+)", head, re.MULTILINE | re.IGNORECASE)
        return parse(head + await self.reader.readexactly(int(length[1]) if length else 0))

    async def final(self) -> Message:
        while (message := await self.message()).status < 200:
            pass
        return message


async def test_messages_over_tcp_may_be_split_and_joined(phone: Phone, raw: RawPhone) -> None:
    stream = await Stream.opened(phone)
    dialog = raw.dialog()
    options = raw.request("OPTIONS", raw.dialog(), via="TCP")
    invite = raw.request("INVITE", dialog, body=raw.offer("0"), via="TCP")
    data = b"\r\n\r\n" + options + invite + b"\r\n" + options
    for at in range(0, len(data), 97):
        stream.writer.write(data[at : at + 97])
        await stream.writer.drain()
        await asyncio.sleep(0.002)
    leg = await phone.next_leg()
    assert (await stream.final()).header("CSeq") == "1 OPTIONS"
    answering = asyncio.create_task(leg.answer())
    finals = [await stream.final(), await stream.final()]
    answer = next(final for final in finals if "INVITE" in final.header("CSeq"))
    dialog.update_target(answer)
    ack = raw.request("ACK", dialog, via="TCP")
    dialog.cseq += 1
    stream.writer.write(ack + raw.request("BYE", dialog, via="TCP") + options[:50])
    assert (await stream.final()).status == 200
    stream.writer.write(options[50:])
    assert (await stream.final()).status == 200
    await wait_ended(leg)
    assert answering.done()
    stream.writer.close()
