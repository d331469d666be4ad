"""PJSUA's call table: an ended call keeps its entry while its peer does not respond, and blocks no other call."""

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


async def call_and_hang_up(phone: Phone, silent: RawPhone, count: int) -> None:
    """Make that many calls to a callee that never responds, and hang each up at once."""
    for _ in range(count):
        leg = await phone.endpoint.call(f"sip:nobody@127.0.0.1:{silent.sip.port}")
        await leg.hangup()
        await leg.ended


async def test_calls_hung_up_without_a_response_do_not_fill_the_call_table(phone: Phone, raw: RawPhone) -> None:
    """Each keeps its entry for 32 s, because CANCEL must wait for a response of the callee (RFC 3261 9.1)."""
    async with RawPhone(phone.target) as silent:
        rings = await phone.endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}")
        callee = await RawCallee.wait_for_invite(raw)
        callee.ring()
        await asyncio.wait_for(rings.ringing, 5)
        live = await phone.call()
        await call_and_hang_up(phone, silent, _native.MAX_CALLS + 20)
        assert _native.call_table_used() > _native.MAX_CALLS - 20
        dialog = raw.dialog()
        raw.invite(dialog, raw.offer("0"))
        leg = await phone.next_leg()
        await asyncio.wait_for(leg.answer(), 5)
        await raw.complete_invite(dialog)
        assert not any(each.ended.done() for each in (rings, live.placed, live.taken))
        callee.answer()
        await asyncio.wait_for(rings.wait_connected(), 5)
        await rings.hangup()
        await callee.expect_bye()
        await raw.bye(dialog)
        await live.end()
        for each in (rings, leg):
            each.release()


async def bye_of(raw: RawPhone, dialog: Dialog) -> Message:
    """The next BYE of this call; an earlier call's may be retransmitted on a busy machine."""
    while (message := await raw.next_request("BYE")).header("Call-ID") != dialog.call_id:
        pass
    return message


async def test_bye_is_retransmitted_after_its_call_table_entry_was_freed(phone: Phone, raw: RawPhone) -> None:
    async with RawPhone(phone.target) as silent:
        dialog = raw.dialog()
        raw.invite(dialog, raw.offer("0"))
        leg = await phone.next_leg()
        answering = asyncio.create_task(leg.answer())
        await raw.complete_invite(dialog)
        await answering
        await leg.hangup()
        leg.release()
        first = await bye_of(raw, dialog)
        await call_and_hang_up(phone, silent, _native.MAX_CALLS + 1)
        while not raw.sip.received.empty():
            raw.sip.received.get_nowait()
        again = await bye_of(raw, dialog)
        assert again.header("Via") == first.header("Via")
        raw.reply(again, "200 OK")
        await raw.options()
        assert raw.sip.received.empty()
