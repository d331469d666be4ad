"""The message tap with real calls: every message of known peers, in order, unchanged."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from secrets import token_hex

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from sipcore.dialogs.leg import Leg
from sipcore.settings import EndpointSettings
from sipcore.trace.sip_capture import CapturedMessage, DialogKey
from sipcore.trace.sip_message import SipMessage
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Dialog, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=20, refuse_unknown=True)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.set_sources(["127.0.0.1"])
    async with RawPhone(phone.target) as raw:
        yield raw


def trace_of(phone: Phone, key: DialogKey | None) -> list[CapturedMessage]:
    """The messages of a dialog so far."""
    phone.endpoint.update_sip_capture()
    trail = phone.endpoint.sip_capture.dialog_trace(key) if key else None
    return list(trail or ())


def summaries(messages: list[CapturedMessage]) -> list[str]:
    return [f"{'>' if each.message.sent else '<'} {each.message.summary.split(' sip:')[0]}" for each in messages]


async def answered(phone: Phone, raw: RawPhone) -> tuple[Dialog, Leg]:
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer())
    leg = await phone.next_leg()
    await leg.send_ringing()
    answering = asyncio.create_task(leg.answer())
    await raw.complete_invite(dialog)
    await answering
    return dialog, leg


async def hung_up(raw: RawPhone, dialog: Dialog, leg: Leg) -> None:
    await raw.bye(dialog)
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_tap_copies_a_call_from_invite_to_bye(phone: Phone, raw: RawPhone) -> None:
    dialog, leg = await answered(phone, raw)
    await hung_up(raw, dialog, leg)
    messages = trace_of(phone, DialogKey(dialog.call_id, "callee", dialog.tag))
    assert summaries(messages) == [
        "< INVITE", "> 100 Trying (INVITE)", "> 180 Ringing (INVITE)", "> 200 OK (INVITE)", "< ACK", "< BYE",
        "> 200 OK (BYE)",
    ]  # fmt: skip
    invite, trying, *_ = (each.message for each in messages)
    assert (invite.peer, invite.ours, invite.transport) == (f"127.0.0.1:{raw.sip.port}", phone.target, "udp")
    assert (trying.peer, trying.cseq, trying.status) == (invite.peer, 1, 100)
    assert [each.message.with_sdp for each in messages] == [True, False, False, True, False, False, False]
    assert not any(each.retransmission for each in messages)
    times = [each.message.at_ns for each in messages]
    assert times == sorted(times)
    assert invite.text.startswith(
        f"INVITE sip:100@127.0.0.1 SIP/2.0\nVia: SIP/2.0/UDP 127.0.0.1:{raw.sip.port};branch="
    )


async def test_tapped_text_equals_the_messages_on_the_wire(phone: Phone, raw: RawPhone) -> None:
    dialog, leg = await answered(phone, raw)
    dialog.cseq += 1
    raw.send(sent := raw.request("INFO", dialog, headers=("Subject: to the letter",)))
    answer = await raw.final_response("INFO")
    await hung_up(raw, dialog, leg)
    messages = [each.message for each in trace_of(phone, DialogKey(dialog.call_id, "callee", dialog.tag))]
    assert sent in [message.raw for message in messages]
    assert answer.text in [message.text.replace("\r\n", "\n").rstrip("\n") for message in messages]


async def test_retransmissions_are_marked(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    branch = raw.branch()
    for _ in range(2):
        raw.send(raw.request("INVITE", dialog, branch=branch))
    leg = await phone.next_leg()
    await leg.send_ringing()
    raw.send(raw.request("INVITE", dialog, branch=branch))
    for _ in range(3):
        while (await raw.next_message()).status != 180:
            pass
        if (
            len(
                [
                    each
                    for each in trace_of(phone, DialogKey(dialog.call_id, "callee", dialog.tag))
                    if each.retransmission
                ]
            )
            > 2
        ):
            break
    await leg.reject(486)
    refusal = await raw.final_response("INVITE")
    dialog.to = refusal.header("To")
    raw.send(raw.request("ACK", dialog, branch=branch))
    messages = trace_of(phone, DialogKey(dialog.call_id, "callee", dialog.tag))
    assert {"< INVITE", "> 180 Ringing (INVITE)"} <= set(summaries([each for each in messages if each.retransmission]))
    assert [each.retransmission for each in messages if each.message.status == 0][:1] == [False]


async def test_a_call_to_ourselves_is_two_dialogs(phone: Phone, raw: RawPhone) -> None:
    call = await phone.call()
    call_id = call.placed.sip_call_id
    assert call.taken.sip_call_id == call_id
    await call.placed.hangup()
    await asyncio.gather(call.placed.ended, call.taken.ended)
    await raw.options()  # what was sent before it has been received
    phone.endpoint.update_sip_capture()
    sip_capture = phone.endpoint.sip_capture
    [caller] = sip_capture.find_dialogs(call_id, "caller")
    [callee] = sip_capture.find_dialogs(call_id, "callee", call.taken.facts.from_tag)
    assert caller != callee
    ours, theirs = trace_of(phone, caller), trace_of(phone, callee)
    assert [summaries([each])[0].replace(">", "=").replace("<", ">").replace("=", "<") for each in theirs] == summaries(
        ours
    )
    assert summaries(ours)[0] == "> INVITE" and summaries(ours)[-1] == "< 200 OK (BYE)"
    assert not sip_capture.find_dialogs(call_id, "callee", "another tag")


async def test_messages_of_unknown_sources_are_not_tapped(phone: Phone, raw: RawPhone) -> None:
    seen: list[SipMessage] = []
    phone.endpoint.update_sip_capture()
    phone.endpoint.sip_capture.watchers.add(watch := lambda message, key, again: seen.append(message))
    try:
        async with RawPhone(phone.target, "127.0.0.9") as unknown_source:
            unknown_source.invite(dialog := unknown_source.dialog(), "")
            assert (await unknown_source.final_response()).status == 403
            response = b"SIP/2.0 200 OK\r\n" + unknown_source.request("INVITE", dialog).split(b"\r\n", 1)[1]
            unknown_source.send(response)
        await raw.options()
        phone.endpoint.update_sip_capture()
    finally:
        phone.endpoint.sip_capture.watchers.discard(watch)
    assert [(message.method, message.status, message.sent) for message in seen] == [
        ("OPTIONS", 0, False),
        ("OPTIONS", 200, True),
    ]


async def test_refusal_by_pjsip_is_logged_and_refusal_by_a_leg_is_not(phone: Phone, raw: RawPhone) -> None:
    with capture_logs() as events:
        raw.invite(hopeless := raw.dialog(), raw.offer("18"))
        assert (await raw.final_response()).status == 488
        raw.invite(raw.dialog(), raw.offer())
        await (await phone.next_leg()).reject(404)
        assert (await raw.final_response()).status == 404
        phone.endpoint.update_sip_capture()
    summaries = [event for event in events if event["event"] == "sip.refused"]
    assert [(event["code"], event["source"], event["sip_call_id"]) for event in summaries] == [
        (488, "127.0.0.1", hopeless.call_id)
    ]


async def test_options_belong_to_no_call_and_are_counted(phone: Phone, raw: RawPhone) -> None:
    phone.endpoint.update_sip_capture()
    sip_capture = phone.endpoint.sip_capture
    before = sip_capture.received["OPTIONS", 0], sip_capture.sent["OPTIONS", 2]
    answer = await raw.options()
    phone.endpoint.update_sip_capture()
    assert (sip_capture.received["OPTIONS", 0], sip_capture.sent["OPTIONS", 2]) == (before[0] + 1, before[1] + 1)
    assert not sip_capture.find_dialogs(answer.header("Call-ID"), "callee")


def flood(target: str, call_ids: list[str]) -> None:
    """OPTIONS of 7 KB, one after the other, each answered."""
    host, port = target.split(":")
    padding = "".join(f"X-Padding-{number}: {'x' * 900}\r\n" for number in range(7))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.settimeout(5)
        peer.connect((host, int(port)))
        ours = f"127.0.0.1:{peer.getsockname()[1]}"
        for number, call_id in enumerate(call_ids):
            peer.send(
                f"OPTIONS sip:{target} SIP/2.0\r\nVia: SIP/2.0/UDP {ours};branch=z9hG4bK-{call_id}\r\n"
                f"From: <sip:flood@{ours}>;tag={number}\r\nTo: <sip:{target}>\r\nCall-ID: {call_id}\r\n"
                f"CSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\n{padding}Content-Length: 0\r\n\r\n".encode()
            )
            peer.recv(8000)


async def test_oldest_unread_messages_are_lost_and_counted(
    phone: Phone, raw: RawPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sipcore.trace.sip_capture.BATCH_INTERVAL_S", 60)
    sip_capture = phone.endpoint.sip_capture
    seen: list[SipMessage] = []
    sip_capture.watchers.add(watch := lambda message, key, again: seen.append(message))
    call_ids = [f"{token_hex(4)}-{number}" for number in range(1800)]
    lost_before = sip_capture.lost
    with capture_logs() as events:
        await asyncio.to_thread(flood, phone.target, call_ids)
        async with asyncio.timeout(20):
            while not any(message.sent and message.call_id == call_ids[-1] for message in seen):
                phone.endpoint.update_sip_capture()
                await asyncio.sleep(0)
    sip_capture.watchers.discard(watch)
    lost = sip_capture.lost - lost_before
    assert lost > 0
    assert sum(event["count"] for event in events if event["event"] == "sip.messages_not_seen") == lost
    strays = len(seen) - sum(message.call_id in set(call_ids) for message in seen)  # retransmissions of earlier tests
    assert strays < 20
    assert 2 * len(call_ids) <= len(seen) - strays + lost < 2 * len(call_ids) + 20
    received = [message for message in seen if not message.sent and message.call_id in set(call_ids)]
    numbers = [call_ids.index(message.call_id) for message in received]
    assert numbers == sorted(numbers) and numbers[-1] == len(call_ids) - 1, "the newest are there, in order"
    assert all(message.raw.endswith(b"\r\n\r\n") and b"X-Padding-6" in message.raw for message in received)
