"""The negotiation of session timers (RFC 4028)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.accelerated_endpoint import AcceleratedPhone
from tests.sipcore.live_call import LiveCall, place_call, wait_ended
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
async def test_inbound_call_has_the_session_timer_of_the_caller(
    phone: Phone, raw: RawPhone, asked: str, agreed: str
) -> None:
    call = await LiveCall.make(phone, raw, headers=("Supported: timer", f"Session-Expires: {asked}"))
    assert call.answer.header("Session-Expires") == agreed
    assert ("timer" in call.answer.header("Require")) == agreed.endswith("uac")
    await call.end()


async def test_we_refresh_a_session_timer_that_a_proxy_requested(phone: Phone, raw: RawPhone) -> None:
    """RFC 4028 9."""
    call = await LiveCall.make(phone, raw, headers=("x: 1800",))
    assert call.answer.header("Session-Expires") == "1800;refresher=uas"
    assert "timer" not in call.answer.header("Require")
    await call.end()


async def test_inbound_call_without_session_expires_has_no_session_timer(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw, headers=("Supported: timer",))
    assert call.answer.header("Session-Expires") == ""
    await call.end()


async def test_session_interval_below_min_se_gets_422(phone: Phone, raw: RawPhone) -> None:
    raw.invite(raw.dialog(), raw.offer("0"), ("Supported: timer", "Session-Expires: 89"))
    refused = await raw.final_response("INVITE")
    assert (refused.status, refused.header("Min-SE")) == (422, "90")
    call = await LiveCall.make(phone, raw, headers=("Supported: timer", "Session-Expires: 1800"))
    for method in ("INVITE", "UPDATE"):
        refused = await call.send_offer(raw.offer("0"), method, ("Supported: timer", "Session-Expires: 30"))
        assert (refused.status, refused.header("Min-SE")) == (422, "90")
    await call.end()


async def test_outbound_invite_has_the_configured_session_expires(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    assert callee.invite.header("Session-Expires") == "600"
    assert callee.invite.header("Min-SE") == "90"
    assert "timer" in callee.invite.header("Supported")
    assert callee.invite.header("Require") == ""
    callee.reject("486 Busy Here")
    await wait_ended(leg)


async def test_callee_may_raise_the_session_interval_by_422(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    callee.reject("422 Session Interval Too Small", "Min-SE: 3600")
    again = await RawCallee.wait_for_invite(raw)
    assert (again.invite.header("Session-Expires"), again.invite.header("Min-SE")) == ("3600", "3600")
    assert int(again.invite.header("CSeq").split()[0]) == int(callee.invite.header("CSeq").split()[0]) + 1
    again.answer(None, "Require: timer", "Session-Expires: 3600;refresher=uas")
    await again.next_request("ACK")
    await again.hang_up()
    await wait_ended(leg)


async def test_without_a_session_timer_no_session_expires_is_sent() -> None:
    async with AcceleratedPhone.started(session_timer_s=0) as accelerated, RawPhone(accelerated.target) as raw:
        accelerated.call(f"sip:1@127.0.0.1:{raw.sip.port}")
        callee = await RawCallee.wait_for_invite(raw)
        callee.reject("486 Busy Here")
        await accelerated.end_of(callee.dialog.call_id)
    assert callee.invite.header("Session-Expires") == ""
    assert "timer" not in callee.invite.header("Supported")
