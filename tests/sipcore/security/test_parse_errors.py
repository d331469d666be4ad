"""Messages that PJSIP cannot read: known sources are told so, and an operator is told which it was."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, RawPhone
from tests.sipcore.security.test_source_guard import STRANGER

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.log_guard_events()
    async with RawPhone(phone.target) as raw:
        yield raw


def told(phone: Phone) -> list[dict[str, Any]]:
    """What the guard has to say."""
    with capture_logs() as logs:
        phone.endpoint.log_guard_events()
    return [{name: value for name, value in line.items() if name != "log_level"} for line in logs]


def spelled(raw: RawPhone, dialog: Dialog, header: str, method: str = "INVITE", via: str = "UDP") -> bytes:
    """A request with this header, in the place of what it has of that name."""
    name = header.partition(":")[0].encode()
    body = raw.offer("0") if method == "INVITE" else ""
    request = raw.request(method, dialog, body=body, via=via)
    request = re.sub(rb"^" + name + rb":[^\r]*\r\n", b"", request, flags=re.MULTILINE)
    return request.replace(b"Max-Forwards:", header.encode() + b"\r\nMax-Forwards:", 1)


@pytest.mark.parametrize(
    "header", ["Authorization: Basic ZGVzazpodXNo", "Proxy-Authorization: Bearer x", "Authorization: Digest"]
)
@pytest.mark.parametrize("via", ["UDP", "TCP"])
async def test_credentials_of_another_scheme_are_none(phone: Phone, raw: RawPhone, header: str, via: str) -> None:
    invite = spelled(raw, raw.dialog(), header, via=via)
    if via == "UDP":
        raw.send(invite)
    else:
        _, writer = await asyncio.open_connection(*phone.target.split(":"))
        writer.write(invite)
    leg = await phone.next_leg()
    assert leg.facts.authorization == (header.partition(": ")[2] if header.startswith("A") else "")
    await leg.reject(486)
    if via == "UDP":
        assert (await raw.final("INVITE")).status == 486
    else:
        writer.close()
    assert told(phone) == []


@pytest.mark.parametrize("challenge", ["WWW-Authenticate: Basic realm=x", "Proxy-Authenticate: Bearer x"])
async def test_a_question_of_another_scheme_ends_the_call_at_once(phone: Phone, raw: RawPhone, challenge: str) -> None:
    leg = await phone.endpoint.call(f"sip:100@127.0.0.1:{raw.sip.port}")
    (await RawCallee.called(raw)).refuses("401 Unauthorized", challenge)
    assert (await asyncio.wait_for(leg.ended, 5)).code == 401
    leg.release()
    assert told(phone) == []


@pytest.mark.parametrize(
    "header",
    [
        "Contact: <<",
        "Content-Type: x",
        "Expires: x",
        "Min-SE: x",
        "Record-Route: x",
        "Session-Expires: x",
        "Via: x",
        "Event:",
    ],
)
async def test_who_is_known_gets_400_for_a_header_that_nobody_can_read(
    phone: Phone, raw: RawPhone, header: str
) -> None:
    dialog, name = raw.dialog(), header.partition(":")[0]
    invite = spelled(raw, dialog, header)
    if name == "Via":
        invite = invite.replace(b"Via: x\r\n", b"").replace(b"\r\n", f"\r\n{_via(raw)}\r\nVia: x\r\n".encode(), 1)
    raw.send(invite)
    answer = await raw.final("INVITE")
    assert (answer.status, answer.header("Call-ID")) == (400, dialog.call_id)
    [line] = told(phone)
    assert line == {
        "event": "sip.garbage", "source": "127.0.0.1", "count": 1, "method": "INVITE", "sip_call_id": dialog.call_id,
        "header": name,
    }  # fmt: skip
    assert phone.incoming.empty()


def _via(raw: RawPhone) -> str:
    return f"Via: SIP/2.0/UDP {raw.host}:{raw.sip.port};branch={raw.branch()};rport"


async def test_over_a_connection_too(phone: Phone, raw: RawPhone) -> None:
    reader, writer = await asyncio.open_connection(*phone.target.split(":"))
    writer.write(spelled(raw, raw.dialog(), "Contact: <<", via="TCP"))
    assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"SIP/2.0 400 ")
    writer.close()
    assert [line["header"] for line in told(phone)] == ["Contact"]


@pytest.mark.parametrize("header", ["CSeq: x", "From: x", "To: <sip:"])
async def test_what_cannot_be_answered_is_named_in_the_log(phone: Phone, raw: RawPhone, header: str) -> None:
    dialog = raw.dialog()
    raw.send(spelled(raw, dialog, header))
    assert (await raw.options()).status == 200
    [line] = told(phone)
    assert (line["method"], line["sip_call_id"]) == ("INVITE", dialog.call_id)
    assert line["header"] == header.partition(":")[0]


async def test_an_answer_that_nobody_can_read_is_named_in_the_log(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:100@127.0.0.1:{raw.sip.port}")
    callee = await RawCallee.called(raw)
    callee.rings("", "183 Session Progress", "Expires: x")
    assert (await raw.options()).status == 200
    [line] = told(phone)
    assert (line["method"], line["sip_call_id"], line["header"]) == ("SIP/2.0 183", leg.sip_call_id, "Expires")
    callee.refuses("486 Busy Here")
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_an_ack_is_never_answered(phone: Phone, raw: RawPhone) -> None:
    raw.send(spelled(raw, raw.dialog(), "Contact: <<", "ACK"))
    assert (await raw.options()).status == 200
    assert raw.sip.received.empty()
    assert [line["method"] for line in told(phone)] == ["ACK"]


async def test_of_many_the_first_is_named(phone: Phone, raw: RawPhone) -> None:
    dialogs = [raw.dialog() for _ in range(3)]
    for dialog in dialogs:
        raw.send(spelled(raw, dialog, "Contact: <<", "MESSAGE"))
    assert (await raw.options()).status in (200, 400)
    [line] = told(phone)
    assert (line["count"], line["sip_call_id"]) == (3, dialogs[0].call_id)


@pytest.mark.parametrize("header", ["Contact: <<", "Authorization: Basic x"])
async def test_a_stranger_gets_silence_and_nothing_of_it_is_kept(phone: Phone, raw: RawPhone, header: str) -> None:
    async with RawPhone(phone.target, STRANGER) as stranger:
        stranger.send(spelled(stranger, stranger.dialog(), header))
        assert (await raw.options()).status == 200
        assert stranger.sip.received.empty()
    assert phone.incoming.empty()
    assert told(phone) == [{"event": "sip.garbage", "source": STRANGER, "count": 1}]


async def test_what_is_no_sip_at_all_has_no_names(phone: Phone, raw: RawPhone) -> None:
    raw.send(b"GET /\xff HTTP/1.1\r\nHost: somewhere.example\r\n\r\n")
    assert (await raw.options()).status == 200
    [line] = told(phone)
    assert (line["event"], line["sip_call_id"]) == ("sip.garbage", None)
    assert str(line["method"]).isprintable()
