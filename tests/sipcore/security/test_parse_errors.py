"""Messages that PJSIP cannot parse: known sources get 400, and the log has the message."""

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
from tests.sipcore.security.test_source_guard import UNKNOWN_SOURCE

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.log_guard_events()
    async with RawPhone(phone.target) as raw:
        yield raw


def guard_log_lines(phone: Phone) -> list[dict[str, Any]]:
    """The log lines of the guard."""
    with capture_logs() as logs:
        phone.endpoint.log_guard_events()
    return [{name: value for name, value in line.items() if name != "log_level"} for line in logs]


def request_with(raw: RawPhone, dialog: Dialog, header: str, method: str = "INVITE", via: str = "UDP") -> bytes:
    """A request with this header instead of its own."""
    name = header.partition(":")[0].encode()
    body = raw.offer("0") if method == "INVITE" else ""
    request = raw.request(method, dialog, body=body, via=via)
    request = re.sub(rb"^" + name + rb":[^\r]*\r\n", b"", request, flags=re.MULTILINE)
    return request.replace(b"Max-Forwards:", header.encode() + b"\r\nMax-Forwards:", 1)


@pytest.mark.parametrize(
    "header", ["Authorization: Basic ZGVzazpodXNo", "Proxy-Authorization: Bearer x", "Authorization: Digest"]
)
@pytest.mark.parametrize("via", ["UDP", "TCP"])
async def test_credentials_of_an_unknown_scheme_are_ignored(phone: Phone, raw: RawPhone, header: str, via: str) -> None:
    invite = request_with(raw, raw.dialog(), header, via=via)
    if via == "UDP":
        raw.send(invite)
    else:
        _, writer = await asyncio.open_connection(*phone.target.split(":"))
        writer.write(invite)
    leg = await phone.next_leg()
    assert leg.facts.authorization == (header.partition(": ")[2] if header.startswith("A") else "")
    await leg.reject(486)
    if via == "UDP":
        assert (await raw.final_response("INVITE")).status == 486
    else:
        writer.close()
    assert guard_log_lines(phone) == []


@pytest.mark.parametrize("challenge", ["WWW-Authenticate: Basic realm=x", "Proxy-Authenticate: Bearer x"])
async def test_challenge_of_an_unknown_scheme_ends_the_call(phone: Phone, raw: RawPhone, challenge: str) -> None:
    leg = await phone.endpoint.call(f"sip:100@127.0.0.1:{raw.sip.port}")
    (await RawCallee.wait_for_invite(raw)).reject("401 Unauthorized", challenge)
    assert (await asyncio.wait_for(leg.ended, 5)).code == 401
    leg.release()
    assert guard_log_lines(phone) == []


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
async def test_known_source_gets_400_for_a_malformed_header(phone: Phone, raw: RawPhone, header: str) -> None:
    dialog, name = raw.dialog(), header.partition(":")[0]
    invite = request_with(raw, dialog, header)
    if name == "Via":
        invite = invite.replace(b"Via: x\r\n", b"").replace(b"\r\n", f"\r\n{_via(raw)}\r\nVia: x\r\n".encode(), 1)
    raw.send(invite)
    answer = await raw.final_response("INVITE")
    assert (answer.status, answer.header("Call-ID")) == (400, dialog.call_id)
    [line] = guard_log_lines(phone)
    assert line == {
        "event": "sip.garbage", "source": "127.0.0.1", "count": 1, "method": "INVITE", "sip_call_id": dialog.call_id,
        "header": name,
    }  # fmt: skip
    assert phone.incoming.empty()


def _via(raw: RawPhone) -> str:
    return f"Via: SIP/2.0/UDP {raw.host}:{raw.sip.port};branch={raw.branch()};rport"


async def test_known_source_gets_400_over_tcp(phone: Phone, raw: RawPhone) -> None:
    reader, writer = await asyncio.open_connection(*phone.target.split(":"))
    writer.write(request_with(raw, raw.dialog(), "Contact: <<", via="TCP"))
    assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"SIP/2.0 400 ")
    writer.close()
    assert [line["header"] for line in guard_log_lines(phone)] == ["Contact"]


@pytest.mark.parametrize("header", ["CSeq: x", "From: x", "To: <sip:"])
async def test_malformed_message_without_a_response_is_logged(phone: Phone, raw: RawPhone, header: str) -> None:
    dialog = raw.dialog()
    raw.send(request_with(raw, dialog, header))
    assert (await raw.options()).status == 200
    [line] = guard_log_lines(phone)
    assert (line["method"], line["sip_call_id"]) == ("INVITE", dialog.call_id)
    assert line["header"] == header.partition(":")[0]


async def test_malformed_response_is_logged(phone: Phone, raw: RawPhone) -> None:
    leg = await phone.endpoint.call(f"sip:100@127.0.0.1:{raw.sip.port}")
    callee = await RawCallee.wait_for_invite(raw)
    callee.ring("", "183 Session Progress", "Expires: x")
    assert (await raw.options()).status == 200
    [line] = guard_log_lines(phone)
    assert (line["method"], line["sip_call_id"], line["header"]) == ("SIP/2.0 183", leg.sip_call_id, "Expires")
    callee.reject("486 Busy Here")
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_an_ack_is_never_answered(phone: Phone, raw: RawPhone) -> None:
    raw.send(request_with(raw, raw.dialog(), "Contact: <<", "ACK"))
    assert (await raw.options()).status == 200
    assert raw.sip.received.empty()
    assert [line["method"] for line in guard_log_lines(phone)] == ["ACK"]


async def test_first_of_many_malformed_messages_is_logged(phone: Phone, raw: RawPhone) -> None:
    dialogs = [raw.dialog() for _ in range(3)]
    for dialog in dialogs:
        raw.send(request_with(raw, dialog, "Contact: <<", "MESSAGE"))
    assert (await raw.options()).status in (200, 400)
    [line] = guard_log_lines(phone)
    assert (line["count"], line["sip_call_id"]) == (3, dialogs[0].call_id)


@pytest.mark.parametrize("header", ["Contact: <<", "Authorization: Basic x"])
async def test_malformed_message_of_an_unknown_source_is_dropped_and_not_quoted(
    phone: Phone, raw: RawPhone, header: str
) -> None:
    async with RawPhone(phone.target, UNKNOWN_SOURCE) as unknown_source:
        unknown_source.send(request_with(unknown_source, unknown_source.dialog(), header))
        assert (await raw.options()).status == 200
        assert unknown_source.sip.received.empty()
    assert phone.incoming.empty()
    assert guard_log_lines(phone) == [{"event": "sip.garbage", "source": UNKNOWN_SOURCE, "count": 1}]


async def test_data_that_is_no_sip_is_logged_without_fields(phone: Phone, raw: RawPhone) -> None:
    raw.send(b"GET /\xff HTTP/1.1\r\nHost: somewhere.example\r\n\r\n")
    assert (await raw.options()).status == 200
    [line] = guard_log_lines(phone)
    assert (line["event"], line["sip_call_id"]) == ("sip.garbage", None)
    assert str(line["method"]).isprintable()
