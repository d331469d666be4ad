"""Transfers by REFER (RFC 3515), where the leg allows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg, Media
from sipcore.messages.contact import Contact
from sipcore.messages.refer import ReferRequest
from tests.sipcore.dialogs.test_replaces import assert_audio_both_ways, expect_bye
from tests.sipcore.live_call import LiveCall, end_call
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    """The caller, which sends REFER."""
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="module")
async def target(phone: Phone) -> AsyncIterator[RawPhone]:
    """The Refer-To target."""
    async with RawPhone(phone.target) as target:
        yield target


class TransferHandler:
    """Calls the target's address for each REFER; `status` is the result instead, without `accepts` as the response to
    the REFER itself."""

    def __init__(self, phone: Phone, target: RawPhone) -> None:
        self.asked: list[ReferRequest] = []
        self.status: int | None = None
        self.accepts = True
        self._phone = phone
        self._port = target.sip.port

    async def __call__(self, wanted: ReferRequest, accept: Callable[[], Awaitable[None]]) -> Leg | int:
        self.asked.append(wanted)
        if wanted.refusal:
            return 603
        if self.accepts:
            await accept()
        if self.status is not None:
            return self.status
        leg = await self._phone.endpoint.call(f"sip:{wanted.contact.user}@127.0.0.1:{self._port}")
        try:
            await leg.wait_connected()
        except ConnectionError:
            leg.release()
            return leg.ended.result().code
        return leg


async def transferable_call(
    phone: Phone, raw: RawPhone, target: RawPhone
) -> tuple[Dialog, Leg, Media, TransferHandler]:
    """A call that may be transferred."""
    call = await LiveCall.make(phone, raw)
    call.leg.on_refer = handler = TransferHandler(phone, target)
    return call.dialog, call.leg, call.media, handler


async def send_refer(raw: RawPhone, dialog: Dialog, to: str, *more: str) -> Message:
    """Send REFER; returns its response."""
    dialog.cseq += 1
    raw.send(raw.request("REFER", dialog, headers=(f"Refer-To: {to}", *more)))
    return await raw.final_response("REFER")


async def next_notify(raw: RawPhone) -> Message:
    """The next NOTIFY, accepted."""
    while not (notice := await raw.next_message()).first_line.startswith("NOTIFY"):
        pass
    kept = [line for name in ("Via", "From", "To", "Call-ID", "CSeq") for line in notice.headers(name)]
    raw.send(("\r\n".join(["SIP/2.0 200 OK", *kept, "Content-Length: 0"]) + "\r\n\r\n").encode())
    assert notice.header("Content-Type").startswith("message/sipfrag")
    return notice


def notify_fields(notice: Message) -> tuple[str, str, str]:
    """The fields of a NOTIFY: event, state, status line."""
    state = notice.header("Subscription-State").partition(";")[0]
    return notice.header("Event"), state, notice.body.strip()


async def test_transfer_connects_the_leg_to_the_refer_target(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, media, handler = await transferable_call(phone, raw, target)
    assert (await send_refer(raw, dialog, "<sip:200@pbx.example;transport=tcp>")).status == 202
    assert notify_fields(await next_notify(raw)) == ("refer", "active", "SIP/2.0 100 Trying")
    callee = await RawCallee.wait_for_invite(target)
    assert (callee.number, handler.asked) == (
        "200",
        [ReferRequest(Contact("200", "pbx.example", "127.0.0.1"), "", 2, False)],
    )
    callee.ring()
    await assert_audio_both_ways(phone, raw, media)
    callee.answer()
    assert notify_fields(await next_notify(raw)) == ("refer", "terminated", "SIP/2.0 200 OK")
    await expect_bye(raw, dialog)
    await assert_audio_both_ways(phone, target, media)
    assert phone.endpoint.live_legs == 1
    await callee.hang_up()
    assert (await asyncio.wait_for(leg.ended, 5)).by_peer
    leg.release()
    assert phone.endpoint.live_legs == 0


async def test_transfer_discards_early_media_of_the_target(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, media, _ = await transferable_call(phone, raw, target)
    await send_refer(raw, dialog, "<sip:200@h>", "Refer-Sub: false")
    callee = await RawCallee.wait_for_invite(target)
    callee.ring(target.offer("0"), "183 Session Progress")
    await assert_audio_both_ways(phone, raw, media)
    callee.answer()
    await expect_bye(raw, dialog)
    await assert_audio_both_ways(phone, target, media)
    await leg.hangup()
    await callee.expect_bye()
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_refer_with_refer_sub_false_gets_no_notify(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, _, handler = await transferable_call(phone, raw, target)
    handler.status = 603
    answer = await send_refer(raw, dialog, "<sip:200@h>", "Refer-Sub: false")
    assert (answer.status, answer.header("Refer-Sub")) == (202, "false")
    await raw.options()
    assert raw.sip.received.empty()
    assert (await end_call(raw, dialog, leg)).by_peer


async def test_failed_transfer_keeps_the_call_and_can_be_repeated(
    phone: Phone, raw: RawPhone, target: RawPhone
) -> None:
    dialog, leg, media, handler = await transferable_call(phone, raw, target)
    await send_refer(raw, dialog, "<sip:200@h>")
    assert notify_fields(await next_notify(raw))[2] == "SIP/2.0 100 Trying"
    (await RawCallee.wait_for_invite(target)).reject("486 Busy Here")
    assert notify_fields(await next_notify(raw)) == ("refer", "terminated", "SIP/2.0 486 Busy Here")
    handler.status = 603
    await send_refer(raw, dialog, "<sip:200@h>")
    assert notify_fields(await next_notify(raw)) == (f"refer;id={dialog.cseq}", "active", "SIP/2.0 100 Trying")
    assert notify_fields(await next_notify(raw)) == (f"refer;id={dialog.cseq}", "terminated", "SIP/2.0 603 Decline")
    await assert_audio_both_ways(phone, raw, media)
    assert (await end_call(raw, dialog, leg)).by_peer


async def test_peer_that_hangs_up_after_refer_has_transferred_the_call(
    phone: Phone, raw: RawPhone, target: RawPhone
) -> None:
    dialog, leg, media, _ = await transferable_call(phone, raw, target)
    await send_refer(raw, dialog, "<sip:200@h>")
    callee = await RawCallee.wait_for_invite(target)
    await raw.bye(dialog)
    await raw.options()
    assert not leg.ended.done()
    assert leg.rtp_silence_s() == 0
    callee.answer()
    await callee.next_request("ACK")
    await assert_audio_both_ways(phone, target, media)
    await callee.hang_up()
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_leg_ends_when_peer_and_refer_target_have_hung_up(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, _, _ = await transferable_call(phone, raw, target)
    await send_refer(raw, dialog, "<sip:200@h>")
    callee = await RawCallee.wait_for_invite(target)
    await raw.bye(dialog)
    callee.reject("480 Temporarily Unavailable")
    end = await asyncio.wait_for(leg.ended, 5)
    assert (end.code, end.by_peer) == (200, True)
    leg.release()
    assert phone.endpoint.live_legs == 0


async def test_second_refer_is_declined_and_a_retransmission_is_not(
    phone: Phone, raw: RawPhone, target: RawPhone
) -> None:
    dialog, leg, _, handler = await transferable_call(phone, raw, target)
    dialog.cseq += 1
    request = raw.request("REFER", dialog, headers=("Refer-To: <sip:200@h>", "Refer-Sub: false"))
    raw.send(request)
    assert (await raw.final_response("REFER")).status == 202
    callee = await RawCallee.wait_for_invite(target)
    raw.send(request)
    assert (await raw.final_response("REFER")).status == 202
    assert (await send_refer(raw, dialog, "<sip:300@h>")).status == 603
    assert [(each.contact.user, each.refusal) for each in handler.asked] == [
        ("200", ""),
        ("300", "another one is under way"),
    ]
    callee.reject("486 Busy Here")
    await callee.next_request("ACK")
    assert (await end_call(raw, dialog, leg)).by_peer


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("<sips:h>", "it is no sip: or sips: URI with a user"),
        ("<tel:200>", "it is no sip: or sips: URI with a user"),
        ("<sip:h>", "it is no sip: or sips: URI with a user"),
        ("<sip:200@h?Replaces=a%0D%0AX:b>", "what it is to replace is no call"),
        ("<sip:200@h?Replaces=x>", "what it is to replace is no call"),
        (f"<sip:200@h;x={'y' * 1000}>", "it is too long"),
    ],
)
async def test_refer_with_an_unusable_target_is_declined_and_reported(
    phone: Phone, raw: RawPhone, target: RawPhone, to: str, why: str
) -> None:
    dialog, leg, _, handler = await transferable_call(phone, raw, target)
    assert (await send_refer(raw, dialog, to)).status == 603
    assert [each.refusal for each in handler.asked] == [why]
    assert (await send_refer(raw, dialog, "<sip:1@h>", "Refer-To: <sip:2@h>")).status == 400
    assert len(handler.asked) == 1
    assert (await end_call(raw, dialog, leg)).by_peer


async def test_declined_refer_gets_its_status_and_no_notify(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, _, handler = await transferable_call(phone, raw, target)
    handler.accepts, handler.status = False, 603
    for _ in range(2):
        assert (await send_refer(raw, dialog, "<sip:200@h>")).status == 603
    await raw.options()
    assert raw.sip.received.empty()
    handler.accepts = True
    assert (await send_refer(raw, dialog, "<sip:200@h>")).status == 202
    assert notify_fields(await next_notify(raw)) == ("refer", "active", "SIP/2.0 100 Trying")
    assert notify_fields(await next_notify(raw)) == ("refer", "terminated", "SIP/2.0 603 Decline")
    assert (await end_call(raw, dialog, leg)).by_peer


async def test_error_in_on_refer_is_answered_with_500(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, _, _ = await transferable_call(phone, raw, target)

    async def fails(*_: object) -> int:
        raise ValueError("while thinking")

    leg.on_refer = fails
    assert (await send_refer(raw, dialog, "<sip:200@h>")).status == 500
    assert (await end_call(raw, dialog, leg)).by_peer


async def test_leg_hung_up_during_a_transfer_stays_ended(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, _, _ = await transferable_call(phone, raw, target)
    await send_refer(raw, dialog, "<sip:200@h>", "Refer-Sub: false")
    callee = await RawCallee.wait_for_invite(target)
    await leg.hangup()
    await expect_bye(raw, dialog)
    callee.answer()
    await callee.expect_bye()
    assert not (await asyncio.wait_for(leg.ended, 5)).by_peer
    leg.release()
