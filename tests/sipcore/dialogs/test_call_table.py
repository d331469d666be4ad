"""PJSUA's table of calls: a call that is over keeps its place while its peer does not answer; nobody pays for that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore import _native
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


async def ring_and_give_up(phone: Phone, silent: RawPhone, count: int) -> None:
    """So many calls to somebody who never says a word, each hung up at once."""
    for _ in range(count):
        leg = await phone.endpoint.call(f"sip:nobody@127.0.0.1:{silent.sip.port}")
        await leg.hangup()
        await leg.ended


async def test_calls_that_were_given_up_keep_nobody_out(phone: Phone, raw: RawPhone) -> None:
    """Each keeps its place for 32 s, for CANCEL must wait until the callee has said something (RFC 3261 9.1)."""
    async with RawPhone(phone.target) as silent:
        rings = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
        callee = await RawCallee.called(raw)
        callee.rings()
        await asyncio.wait_for(rings.ringing, 5)
        live = await phone.call()
        await ring_and_give_up(phone, silent, _native.MAX_CALLS + 20)
        assert _native.call_table_used() > _native.MAX_CALLS - 20
        dialog = raw.dialog()
        raw.invite(dialog, raw.offer("0"))
        leg = await phone.next_leg()
        await asyncio.wait_for(leg.answer(), 5)
        await raw.accepted(dialog)
        assert not any(each.ended.done() for each in (rings, live.placed, live.taken))
        callee.answers()
        await asyncio.wait_for(rings.connected(), 5)
        await rings.hangup()
        await callee.is_hung_up_on()
        await raw.bye(dialog)
        await live.end()
        for each in (rings, leg):
            each.release()


async def bye_of(raw: RawPhone, dialog: Dialog) -> Message:
    """The next one of this call: on a busy machine one of an earlier call may have come twice."""
    while (message := await raw.asked("BYE")).header("Call-ID") != dialog.call_id:
        pass
    return message


async def test_a_bye_is_sent_again_though_its_call_had_to_make_room(phone: Phone, raw: RawPhone) -> None:
    async with RawPhone(phone.target) as silent:
        dialog = raw.dialog()
        raw.invite(dialog, raw.offer("0"))
        leg = await phone.next_leg()
        answering = asyncio.create_task(leg.answer())
        await raw.accepted(dialog)
        await answering
        await leg.hangup()
        leg.release()
        first = await bye_of(raw, dialog)
        await ring_and_give_up(phone, silent, _native.MAX_CALLS + 1)
        while not raw.sip.received.empty():
            raw.sip.received.get_nowait()
        again = await bye_of(raw, dialog)
        assert again.header("Via") == first.header("Via")
        raw.reply(again, "200 OK")
        await raw.options()
        assert raw.sip.received.empty()
