"""Codecs of a trunk: calls in both directions offer and accept these alone, in every SDP, while other calls have all of
the endpoint's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from sipcore import _native
from sipcore.dialogs.leg import Leg
from sipcore.messages.contact import Contact
from sipcore.messages.headers import NameAddr
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.settings import EndpointSettings
from sipcore.trunks.trunk import Trunk
from tests.sipcore.live_call import LiveCall, end_call, place_call, wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("opus", "G722", "PCMU", "PCMA"), max_calls=20)
NAME = "carrier.example"
EVENTS = ["telephone-event/8000"]
OURS = ["PCMA/8000", "G722/8000", *EVENTS]
"""What a trunk with PCMA and G722 offers."""
ALL = ["opus/48000/2", "G722/8000", "PCMU/8000", "PCMA/8000"]
OFFERED_G722 = ("9 101", "rtpmap:9 G722/8000")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    """The carrier."""
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="module")
async def other(phone: Phone) -> AsyncIterator[RawPhone]:
    """Another phone; for an outbound call the carrier's other address."""
    async with RawPhone(phone.target) as other:
        yield other


def formats(sdp: str) -> list[str]:
    """The audio formats of an SDP, in its order; every rtpmap and fmtp belongs to one."""
    [line] = re.findall(r"^m=audio \d+ \S+ (.*?)\r?$", sdp, re.MULTILINE)
    names = dict(re.findall(r"^a=rtpmap:(\d+) (\S+)", sdp, re.MULTILINE))
    described = {*names, *re.findall(r"^a=fmtp:(\d+)", sdp, re.MULTILINE)}
    payload_types = line.split()
    assert described <= set(payload_types), sdp
    return [names[each] for each in payload_types]


def trunk(*codecs: str) -> Trunk:
    return Trunk(
        key="t", host=NAME, port=None, transport="udp", outbound_proxy=None, user="100", credentials=None,
        registers=False, follow_redirects=True, accept_refer=False, qualify_s=0, number="100", codecs=codecs,
    )  # fmt: skip


async def call_trunk(phone: Phone, codecs: Sequence[str], *targets: RawPhone, **more: object) -> Leg:
    """A call through a trunk with these codecs, whose host has the addresses of these phones."""
    found = [SipTarget(each.host, each.sip.port, "udp") for each in targets]
    phone.endpoint.set_host_table({SipHostPort(NAME, None, "udp"): found})
    used = trunk(*codecs)
    await phone.endpoint.set_trunks([used])
    return await phone.endpoint.call("900", trunk=used, caller=NameAddr("100", ""), **more)  # type: ignore[arg-type]


async def answer_limited(phone: Phone, raw: RawPhone, sdp: str, codecs: Sequence[str] = ("PCMA", "G722")) -> LiveCall:
    """A call from the carrier that is limited to these codecs and answered."""
    dialog = raw.dialog()
    raw.invite(dialog, sdp)
    leg = await phone.next_leg()
    assert await leg.limit_codecs(codecs)
    answering = asyncio.create_task(leg.answer())
    answer = await raw.complete_invite(dialog)
    return LiveCall(phone, raw, dialog, leg, await asyncio.wait_for(answering, 5), answer)


async def offer_of_reinvite(raw: RawPhone, dialog: Dialog, answer: str) -> str:
    """The offer in the 200 of a re-INVITE without SDP, whose ACK has this answer."""
    dialog.cseq += 1
    raw.send(raw.request("INVITE", dialog))
    response = await raw.final_response("INVITE")
    raw.send(raw.request("ACK", dialog, body=answer))
    return response.body


# ---- calls to the carrier ----


async def test_an_offer_has_the_codecs_of_the_trunk_in_its_order_alone(phone: Phone, raw: RawPhone) -> None:
    for codecs, expected in (
        (("PCMA", "G722"), OURS),
        (("PCMU",), ["PCMU/8000", *EVENTS]),
        (("opus",), ["opus/48000/2", "telephone-event/48000"]),
        ((), [*ALL, "telephone-event/48000", "telephone-event/8000"]),
    ):
        leg = await call_trunk(phone, codecs, raw)
        callee = await RawCallee.wait_for_invite(raw)
        assert sorted(formats(callee.invite.body)[len(codecs) :]) == sorted(expected[len(codecs) :])
        assert formats(callee.invite.body)[: len(codecs or ALL)] == expected[: len(codecs or ALL)]
        callee.reject("486 Busy Here")
        await wait_ended(leg)


async def test_an_outbound_call_keeps_its_codecs_in_reinvites_of_the_peer(phone: Phone, raw: RawPhone) -> None:
    leg = await call_trunk(phone, ("PCMA", "G722"), raw)
    callee = await RawCallee.wait_for_invite(raw)
    callee.answer(raw.offer("8 101", "rtpmap:8 PCMA/8000"))
    media = await asyncio.wait_for(leg.wait_connected(), 5)
    assert media.codec == "PCMA"
    accepted = await callee.reinvite(raw.offer("0 9 101", "rtpmap:9 G722/8000"))
    assert (accepted.status, formats(accepted.body)) == (200, ["G722/8000", *EVENTS])
    assert (await callee.reinvite(raw.offer("0 101"))).status == 488
    ours = await callee.reinvite("", raw.offer("8 101", "rtpmap:8 PCMA/8000"))
    assert (ours.status, formats(ours.body)) == (200, OURS)
    await phone.audio.ticks(3)
    ending = asyncio.create_task(leg.hangup())
    await callee.expect_bye()
    await ending
    await wait_ended(leg)


async def test_the_next_target_and_a_redirect_get_the_same_offer(phone: Phone, raw: RawPhone, other: RawPhone) -> None:
    async def follow(contact: Contact) -> str | None:
        return contact.user

    leg = await call_trunk(phone, ("PCMA", "G722"), raw, other, follow=follow)
    first = await RawCallee.wait_for_invite(raw)
    first.reject("503 Service Unavailable")
    second = await RawCallee.wait_for_invite(other)
    second.reject("302 Moved Temporarily", "Contact: <sip:901@elsewhere.example>")
    redirected = await RawCallee.wait_for_invite(other)
    assert redirected.number == "901"
    assert [formats(each.invite.body) for each in (first, second, redirected)] == [OURS, OURS, OURS]
    redirected.reject("486 Busy Here")
    await wait_ended(leg)


async def test_other_calls_have_all_codecs(phone: Phone, raw: RawPhone) -> None:
    limited = await answer_limited(phone, raw, raw.offer("8 101", "rtpmap:8 PCMA/8000"))
    leg, callee = await place_call(phone, raw)
    assert formats(callee.invite.body)[: len(ALL)] == ALL
    callee.reject("486 Busy Here")
    await wait_ended(leg)
    call = await LiveCall.make(phone, raw, raw.offer("0 101"))
    assert formats(call.answer.body) == ["PCMU/8000", *EVENTS]
    await call.end()
    await limited.end()


# ---- calls from the carrier ----


@pytest.mark.parametrize(
    ("offered", "codec"),
    [("0 9 8 101", "G722/8000"), ("0 8 9 101", "PCMA/8000"), ("0 8 101", "PCMA/8000")],
)
async def test_the_answer_has_the_first_offered_codec_of_the_trunk(
    phone: Phone, raw: RawPhone, offered: str, codec: str
) -> None:
    call = await answer_limited(phone, raw, raw.offer(offered, "rtpmap:9 G722/8000", "rtpmap:8 PCMA/8000"))
    assert formats(call.answer.body) == [codec, *EVENTS]
    assert call.media.codec == codec.partition("/")[0]
    await call.end()


async def test_a_call_that_offers_none_cannot_be_answered(phone: Phone, raw: RawPhone) -> None:
    for codecs, offer, offered in (
        (("PCMA", "G722"), raw.offer("0 101"), False),
        (("opus",), raw.offer("0 101"), False),
        (("PCMU",), raw.offer("0"), True),
        (("opus",), raw.offer("96", "rtpmap:96 opus/48000/2"), True),
    ):
        dialog = raw.dialog()
        branch = raw.invite(dialog, offer)
        leg = await phone.next_leg()
        assert await leg.limit_codecs(codecs) is offered
        await leg.reject(488)
        answer = await raw.final_response("INVITE")
        raw.acknowledge(dialog, answer, branch)
        assert answer.status == 488
        await wait_ended(leg)


async def test_an_inbound_call_keeps_its_codecs_in_reinvites(phone: Phone, raw: RawPhone) -> None:
    call = await answer_limited(phone, raw, raw.offer("8 101", "rtpmap:8 PCMA/8000"))
    answer = await call.send_offer(raw.offer("0 9 101", "rtpmap:9 G722/8000"))
    assert (answer.status, formats(answer.body)) == (200, ["G722/8000", *EVENTS])
    for method in ("INVITE", "UPDATE"):
        assert (await call.send_offer(raw.offer("0 101"), method)).status == 488
    assert formats(await offer_of_reinvite(raw, call.dialog, raw.offer(*OFFERED_G722))) == OURS
    await phone.audio.ticks(3)
    assert not call.leg.ended.done()
    await call.end()


async def test_an_invite_without_an_offer_gets_one_with_the_codecs_of_the_trunk(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    raw.send(raw.request("INVITE", dialog))
    leg = await phone.next_leg()
    assert await leg.limit_codecs(("PCMA", "G722"))
    answering = asyncio.create_task(leg.answer())
    offer = await raw.final_response("INVITE")
    assert formats(offer.body) == OURS
    dialog.update_target(offer)
    raw.send(raw.request("ACK", dialog, body=raw.offer(*OFFERED_G722)))
    assert (await asyncio.wait_for(answering, 5)).codec == "G722"
    await end_call(raw, dialog, leg)


async def replace_peer(other: RawPhone, old: Dialog, sdp: str) -> tuple[Dialog, Message]:
    """An INVITE with Replaces from another phone; returns its dialog and final response, which is acknowledged."""
    new = other.dialog()
    headers = (f"Replaces: {old.call_id};to-tag={old.to.split('tag=')[1]};from-tag={old.tag}", "Require: replaces")
    branch = other.invite(new, sdp, headers)
    answer = await other.final_response("INVITE")
    if answer.status == 200:
        new.update_target(answer)
    other.acknowledge(new, answer, branch)
    return new, answer


async def test_the_dialog_of_an_invite_with_replaces_has_the_codecs_of_the_former_one(
    phone: Phone, raw: RawPhone, other: RawPhone
) -> None:
    call = await answer_limited(phone, raw, raw.offer("8 101", "rtpmap:8 PCMA/8000"))
    _, refusal = await replace_peer(other, call.dialog, other.offer("0 101"))
    assert refusal.status == 488
    assert not call.leg.ended.done()
    new, answer = await replace_peer(other, call.dialog, other.offer("0 9 101", "rtpmap:9 G722/8000"))
    assert (answer.status, formats(answer.body)) == (200, ["G722/8000", *EVENTS])
    bye = await raw.next_message()
    while not bye.first_line.startswith("BYE"):
        bye = await raw.next_message()
    raw.reply(bye, "200 OK")
    assert formats(await offer_of_reinvite(other, new, other.offer(*OFFERED_G722))) == OURS
    await phone.audio.ticks(3)
    await end_call(other, new, call.leg)


async def test_unknown_names_are_refused_and_a_call_that_has_ended_needs_no_codec(phone: Phone, raw: RawPhone) -> None:
    wrong: tuple[Any, ...] = (["G729"], ["PCMU", "PCMU"], [1], 5)
    for names in wrong:
        with pytest.raises((ValueError, TypeError)):
            _native.codecs_of_next_invites(names)
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    await leg.reject(486)
    raw.acknowledge(dialog, await raw.final_response("INVITE"), branch)
    await wait_ended(leg)
    assert await leg.limit_codecs(["G722"])
