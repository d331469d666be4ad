"""Transfers as the other side asks for them with REFER (RFC 3515), where whoever has the leg allows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg, Media
from sipcore.messages.contact import Contact
from sipcore.messages.refer import ReferRequest
from tests.sipcore.dialogs.test_replaces import connected, hear_each_other, is_hung_up_on, over
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    """Who calls, and transfers."""
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="module")
async def target(phone: Phone) -> AsyncIterator[RawPhone]:
    """Whom the call is transferred to."""
    async with RawPhone(phone.target) as target:
        yield target


class Desk:
    """Calls whomever it is told to, at the target's address; `status` is what it says instead, without `accepts` as
    the answer to the REFER itself."""

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
            await leg.connected()
        except ConnectionError:
            leg.release()
            return leg.ended.result().code
        return leg


async def talking(phone: Phone, raw: RawPhone, target: RawPhone) -> tuple[Dialog, Leg, Media, Desk]:
    """A call that may be transferred."""
    dialog, leg, media = await connected(phone, raw, raw.offer("0"))
    leg.on_refer = desk = Desk(phone, target)
    return dialog, leg, media, desk


async def refers(raw: RawPhone, dialog: Dialog, to: str, *more: str) -> Message:
    """Send REFER; its answer."""
    dialog.cseq += 1
    raw.send(raw.request("REFER", dialog, headers=(f"Refer-To: {to}", *more)))
    return await raw.final("REFER")


async def is_told(raw: RawPhone) -> Message:
    """The next NOTIFY, accepted."""
    while not (notice := await raw.message()).first_line.startswith("NOTIFY"):
        pass
    kept = [line for name in ("Via", "From", "To", "Call-ID", "CSeq") for line in notice.headers(name)]
    raw.send(("\r\n".join(["SIP/2.0 200 OK", *kept, "Content-Length: 0"]) + "\r\n\r\n").encode())
    assert notice.header("Content-Type").startswith("message/sipfrag")
    return notice


def said(notice: Message) -> tuple[str, str, str]:
    """What a notice tells: event, state, status line."""
    state = notice.header("Subscription-State").partition(";")[0]
    return notice.header("Event"), state, notice.body.strip()


async def test_the_leg_and_its_sound_go_on_with_who_was_named(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, media, desk = await talking(phone, raw, target)
    assert (await refers(raw, dialog, "<sip:200@pbx.example;transport=tcp>")).status == 202
    assert said(await is_told(raw)) == ("refer", "active", "SIP/2.0 100 Trying")
    callee = await RawCallee.called(target)
    assert (callee.number, desk.asked) == (
        "200",
        [ReferRequest(Contact("200", "pbx.example", "127.0.0.1"), "", 2, False)],
    )
    callee.rings()
    await hear_each_other(phone, raw, media)
    callee.answers()
    assert said(await is_told(raw)) == ("refer", "terminated", "SIP/2.0 200 OK")
    await is_hung_up_on(raw, dialog)
    await hear_each_other(phone, target, media)
    assert phone.endpoint.live_legs == 1
    await callee.hangs_up()
    assert (await asyncio.wait_for(leg.ended, 5)).by_peer
    leg.release()
    assert phone.endpoint.live_legs == 0


async def test_what_was_heard_before_the_answer_is_not_kept(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, media, _ = await talking(phone, raw, target)
    await refers(raw, dialog, "<sip:200@h>", "Refer-Sub: false")
    callee = await RawCallee.called(target)
    callee.rings(target.offer("0"), "183 Session Progress")
    await hear_each_other(phone, raw, media)
    callee.answers()
    await is_hung_up_on(raw, dialog)
    await hear_each_other(phone, target, media)
    await leg.hangup()
    await callee.is_hung_up_on()
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_who_does_not_want_to_hear_of_it_hears_nothing(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, _, desk = await talking(phone, raw, target)
    desk.status = 603
    answer = await refers(raw, dialog, "<sip:200@h>", "Refer-Sub: false")
    assert (answer.status, answer.header("Refer-Sub")) == (202, "false")
    await raw.options()
    assert raw.sip.received.empty()
    await over(raw, dialog, leg)


async def test_a_transfer_that_fails_leaves_the_call_as_it_was_and_may_be_tried_again(
    phone: Phone, raw: RawPhone, target: RawPhone
) -> None:
    dialog, leg, media, desk = await talking(phone, raw, target)
    await refers(raw, dialog, "<sip:200@h>")
    assert said(await is_told(raw))[2] == "SIP/2.0 100 Trying"
    (await RawCallee.called(target)).refuses("486 Busy Here")
    assert said(await is_told(raw)) == ("refer", "terminated", "SIP/2.0 486 Busy Here")
    desk.status = 603
    await refers(raw, dialog, "<sip:200@h>")
    assert said(await is_told(raw)) == (f"refer;id={dialog.cseq}", "active", "SIP/2.0 100 Trying")
    assert said(await is_told(raw)) == (f"refer;id={dialog.cseq}", "terminated", "SIP/2.0 603 Decline")
    await hear_each_other(phone, raw, media)
    await over(raw, dialog, leg)


async def test_who_hangs_up_right_after_asking_has_transferred_the_call(
    phone: Phone, raw: RawPhone, target: RawPhone
) -> None:
    dialog, leg, media, _ = await talking(phone, raw, target)
    await refers(raw, dialog, "<sip:200@h>")
    callee = await RawCallee.called(target)
    await raw.bye(dialog)
    await raw.options()
    assert not leg.ended.done()
    assert leg.rtp_silence_s() == 0
    callee.answers()
    await callee.gets("ACK")
    await hear_each_other(phone, target, media)
    await callee.hangs_up()
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def test_a_call_whose_both_sides_are_gone_ends(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, _, _ = await talking(phone, raw, target)
    await refers(raw, dialog, "<sip:200@h>")
    callee = await RawCallee.called(target)
    await raw.bye(dialog)
    callee.refuses("480 Temporarily Unavailable")
    end = await asyncio.wait_for(leg.ended, 5)
    assert (end.code, end.by_peer) == (200, True)
    leg.release()
    assert phone.endpoint.live_legs == 0


async def test_one_wish_at_a_time_is_heard_and_a_repeated_request_is_the_same_wish(
    phone: Phone, raw: RawPhone, target: RawPhone
) -> None:
    dialog, leg, _, desk = await talking(phone, raw, target)
    dialog.cseq += 1
    request = raw.request("REFER", dialog, headers=("Refer-To: <sip:200@h>", "Refer-Sub: false"))
    raw.send(request)
    assert (await raw.final("REFER")).status == 202
    callee = await RawCallee.called(target)
    raw.send(request)
    assert (await raw.final("REFER")).status == 202
    assert (await refers(raw, dialog, "<sip:300@h>")).status == 603
    assert [(each.contact.user, each.refusal) for each in desk.asked] == [
        ("200", ""),
        ("300", "another one is under way"),
    ]
    callee.refuses("486 Busy Here")
    await callee.gets("ACK")
    await over(raw, dialog, leg)


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("<sips:200@h>", "it is no sip: URI with a user"),
        ("<tel:200>", "it is no sip: URI with a user"),
        ("<sip:h>", "it is no sip: URI with a user"),
        ("<sip:200@h?Replaces=a%0D%0AX:b>", "what it is to replace is no call"),
        ("<sip:200@h?Replaces=x>", "what it is to replace is no call"),
        (f"<sip:200@h;x={'y' * 1000}>", "it is too long"),
    ],
)
async def test_what_nobody_can_be_called_by_is_declined_and_told_of(
    phone: Phone, raw: RawPhone, target: RawPhone, to: str, why: str
) -> None:
    dialog, leg, _, desk = await talking(phone, raw, target)
    assert (await refers(raw, dialog, to)).status == 603
    assert [each.refusal for each in desk.asked] == [why]
    assert (await refers(raw, dialog, "<sip:1@h>", "Refer-To: <sip:2@h>")).status == 400
    assert len(desk.asked) == 1
    await over(raw, dialog, leg)


async def test_a_wish_that_is_not_granted_gets_its_answer_and_no_notice(
    phone: Phone, raw: RawPhone, target: RawPhone
) -> None:
    dialog, leg, _, desk = await talking(phone, raw, target)
    desk.accepts, desk.status = False, 603
    for _ in range(2):
        assert (await refers(raw, dialog, "<sip:200@h>")).status == 603
    await raw.options()
    assert raw.sip.received.empty()
    desk.accepts = True
    assert (await refers(raw, dialog, "<sip:200@h>")).status == 202
    assert said(await is_told(raw)) == ("refer", "active", "SIP/2.0 100 Trying")
    assert said(await is_told(raw)) == ("refer", "terminated", "SIP/2.0 603 Decline")
    await over(raw, dialog, leg)


async def test_a_fault_while_a_wish_is_thought_about_is_answered(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, _, _ = await talking(phone, raw, target)

    async def fails(*_: object) -> int:
        raise ValueError("while thinking")

    leg.on_refer = fails
    assert (await refers(raw, dialog, "<sip:200@h>")).status == 500
    await over(raw, dialog, leg)


async def test_a_leg_that_is_hung_up_meanwhile_goes_nowhere(phone: Phone, raw: RawPhone, target: RawPhone) -> None:
    dialog, leg, _, _ = await talking(phone, raw, target)
    await refers(raw, dialog, "<sip:200@h>", "Refer-Sub: false")
    callee = await RawCallee.called(target)
    await leg.hangup()
    await is_hung_up_on(raw, dialog)
    callee.answers()
    await callee.is_hung_up_on()
    assert not (await asyncio.wait_for(leg.ended, 5)).by_peer
    leg.release()
