"""What is agreed on session timers (RFC 4028), before any of them runs out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.accelerated_endpoint import HurriedPhone
from tests.sipcore.live_call import LiveCall, ended, placed
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40, session_timer_s=600)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [
        ("1800;refresher=uac", "1800;refresher=uac"),
        ("90;refresher=uas", "90;refresher=uas"),
        ("300", "300;refresher=uac"),
    ],
)
async def test_a_caller_has_the_timer_that_it_asks_for(phone: Phone, raw: RawPhone, asked: str, agreed: str) -> None:
    call = await LiveCall.made(phone, raw, headers=("Supported: timer", f"Session-Expires: {asked}"))
    assert call.answer.header("Session-Expires") == agreed
    assert ("timer" in call.answer.header("Require")) == agreed.endswith("uac")
    await call.over()


async def test_a_proxy_that_asks_for_a_caller_that_knows_none_leaves_the_refreshing_to_us(
    phone: Phone, raw: RawPhone
) -> None:
    """RFC 4028 9."""
    call = await LiveCall.made(phone, raw, headers=("x: 1800",))
    assert call.answer.header("Session-Expires") == "1800;refresher=uas"
    assert "timer" not in call.answer.header("Require")
    await call.over()


async def test_a_caller_that_asks_for_none_has_none(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.made(phone, raw, headers=("Supported: timer",))
    assert call.answer.header("Session-Expires") == ""
    await call.over()


async def test_an_interval_that_is_too_short_is_refused_with_the_shortest_one(phone: Phone, raw: RawPhone) -> None:
    raw.invite(raw.dialog(), raw.offer("0"), ("Supported: timer", "Session-Expires: 89"))
    refused = await raw.final("INVITE")
    assert (refused.status, refused.header("Min-SE")) == (422, "90")
    call = await LiveCall.made(phone, raw, headers=("Supported: timer", "Session-Expires: 1800"))
    for method in ("INVITE", "UPDATE"):
        refused = await call.again(raw.offer("0"), method, ("Supported: timer", "Session-Expires: 30"))
        assert (refused.status, refused.header("Min-SE")) == (422, "90")
    await call.over()


async def test_calls_of_ours_ask_for_what_is_set(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    assert callee.invite.header("Session-Expires") == "600"
    assert callee.invite.header("Min-SE") == "90"
    assert "timer" in callee.invite.header("Supported")
    assert callee.invite.header("Require") == ""
    callee.refuses("486 Busy Here")
    await ended(leg)


async def test_a_callee_that_wants_more_gets_more(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await placed(phone, raw)
    callee.refuses("422 Session Interval Too Small", "Min-SE: 3600")
    again = await RawCallee.called(raw)
    assert (again.invite.header("Session-Expires"), again.invite.header("Min-SE")) == ("3600", "3600")
    assert int(again.invite.header("CSeq").split()[0]) == int(callee.invite.header("CSeq").split()[0]) + 1
    again.answers(None, "Require: timer", "Session-Expires: 3600;refresher=uas")
    await again.gets("ACK")
    await again.hangs_up()
    await ended(leg)


async def test_without_a_timer_none_is_asked_for() -> None:
    async with HurriedPhone.started(session_timer_s=0) as hurried, RawPhone(hurried.target) as raw:
        hurried.call(f"sip:1@127.0.0.1:{raw.sip.port}")
        callee = await RawCallee.called(raw)
        callee.refuses("486 Busy Here")
        await hurried.end_of(callee.dialog.call_id)
    assert callee.invite.header("Session-Expires") == ""
    assert "timer" not in callee.invite.header("Supported")
