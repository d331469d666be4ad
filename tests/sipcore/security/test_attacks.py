"""Floods and forgeries during a call: its audio stays even, no call is cut off, and nothing leaks."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from secrets import token_hex

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from sipcore import _native
from sipcore.dialogs.leg import Leg
from sipcore.security import source_guard
from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall, assert_audio_flows, place_call, wait_ended
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Dialog, RawPhone
from tests.sipcore.rtp.packet_spacing import assert_even_audio

pytestmark = pytest.mark.asyncio(loop_scope="module")
MOST_INVITES = 50
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=60, max_invites_per_second=MOST_INVITES)
FLOODER, OTHER, UNKNOWN_SOURCE = "127.0.0.5", "127.0.0.6", "127.0.0.7"
PER_SECOND, SECONDS = 1000, 2


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.set_sources(["127.0.0.1", FLOODER, OTHER])
    async with RawPhone(phone.target) as raw:
        yield raw
    phone.endpoint.log_guard_events()


async def flood(send: Callable[[], object], per_second: int = PER_SECOND, seconds: float = SECONDS) -> None:
    """Send at that rate, in bursts every 10 ms."""
    begun = time.monotonic()
    for number in itertools.count():
        due = min((time.monotonic() - begun), seconds) * per_second
        if number >= due:
            if due >= seconds * per_second:
                return
            await asyncio.sleep(0.01)
        send()


def _release(leg: Leg, _: object) -> None:
    leg.release()


async def reject_all(phone: Phone, legs: list[Leg]) -> None:
    """Reject every inbound call, until cancelled."""
    while True:
        leg = await phone.incoming.get()
        legs.append(leg)
        await leg.reject(486)


async def test_invite_flood_from_a_known_source_affects_only_that_source(phone: Phone, raw: RawPhone) -> None:
    legs: list[Leg] = []
    async with RawPhone(phone.target, FLOODER) as flooder, RawPhone(phone.target, OTHER) as other:
        async with assert_even_audio(phone):
            turning_away = asyncio.create_task(reject_all(phone, legs))
            await flood(lambda: flooder.invite(flooder.dialog(), flooder.offer("0")))
            await raw.wait_processed()
            turning_away.cancel()
            while not phone.incoming.empty():
                legs.append(phone.incoming.get_nowait())
            for leg in legs:
                await leg.hangup()
            call = await LiveCall.make(phone, other)
            await assert_audio_flows(phone, other, call.media)
            await call.end()
        answers = [flooder.sip.received.get_nowait() for _ in range(flooder.sip.received.qsize())]
    await asyncio.wait_for(asyncio.gather(*(leg.ended for leg in legs)), 5)
    assert len(legs) <= MOST_INVITES * (SECONDS + 3)
    assert sum(b"503 Service Unavailable" in answer for answer in answers) > PER_SECOND / 4
    assert phone.endpoint.live_legs == 0


async def test_invite_flood_from_an_unknown_source_gets_no_response(phone: Phone, raw: RawPhone) -> None:
    phone.endpoint.log_guard_events()
    async with RawPhone(phone.target, UNKNOWN_SOURCE) as unknown_source, assert_even_audio(phone):
        await flood(lambda: unknown_source.invite(unknown_source.dialog(), unknown_source.offer("0")))
        await raw.wait_processed()
        assert unknown_source.sip.received.empty()
    assert phone.incoming.empty()
    with capture_logs() as logs:
        phone.endpoint.log_guard_events()
    assert [(line["event"], line["source"]) for line in logs] == [("sip.unknown_source", UNKNOWN_SOURCE)]
    assert logs[0]["count"] > PER_SECOND / 4


async def test_calls_without_ack_all_end_when_the_call_table_is_full(phone: Phone, raw: RawPhone) -> None:
    """More than the table holds, so that its entries are reused at once, by callers that never acknowledge."""
    source_guard.set_invite_rate_limit(0)
    legs: list[Leg] = []
    verbs: list[asyncio.Task[object]] = []
    try:
        async with assert_even_audio(phone):
            for _ in range(20):
                for _ in range(50):
                    raw.invite(raw.dialog(), raw.offer("0"))
                await raw.wait_processed()
                while not phone.incoming.empty():
                    legs.append(leg := phone.incoming.get_nowait())
                    leg.ended.add_done_callback(partial(_release, leg))
                    verbs.append(asyncio.create_task(leg.reject(486) if len(legs) % 2 else leg.answer()))
            for leg in legs:
                await leg.hangup()
            await asyncio.gather(*verbs, return_exceptions=True)
    finally:
        source_guard.set_invite_rate_limit(MOST_INVITES)
    assert len(legs) > 100
    await asyncio.wait_for(asyncio.gather(*(leg.ended for leg in legs)), 5)
    assert phone.endpoint.live_legs == 0
    call = await phone.call()
    await call.end()


async def test_ended_call_does_not_affect_the_next_call_with_its_number(phone: Phone, raw: RawPhone) -> None:
    """PJSUA reuses numbers in turn, and the remains of an ended call may be freed after its number is reused."""
    source_guard.set_invite_rate_limit(0)
    later = threading.Event()
    keeping_back = asyncio.wrap_future(phone.endpoint._pjsip_thread.post(later.wait))
    try:
        await call_and_cancel(phone, raw, _native.MAX_CALLS)
        async with RawPhone(phone.target) as caller:
            dialog = caller.dialog()
            caller.invite(dialog, caller.offer("0"))
            leg = await phone.next_leg()
            later.set()
            await keeping_back
            answering = asyncio.create_task(leg.answer())
            await caller.complete_invite(dialog)
            await assert_audio_flows(phone, caller, await asyncio.wait_for(answering, 5))
            await caller.bye(dialog)
            assert (await wait_ended(leg)).by_peer
    finally:
        later.set()
        source_guard.set_invite_rate_limit(MOST_INVITES)


async def call_and_cancel(phone: Phone, raw: RawPhone, times: int) -> None:
    """Make that many calls that end before the program handles them."""
    legs: list[Leg] = []
    while len(legs) < times:
        for _ in range(20):
            dialog = raw.dialog()
            raw.send(raw.request("CANCEL", dialog, branch=raw.invite(dialog, raw.offer("0"))))
        await raw.wait_processed()
        legs += [phone.incoming.get_nowait() for _ in range(phone.incoming.qsize())]
    await asyncio.wait_for(asyncio.gather(*(leg.ended for leg in legs)), 5)


FORGERIES = ("BYE", "INVITE", "UPDATE", "INFO", "CANCEL", "REFER", "OPTIONS", "ACK")


@pytest.mark.parametrize("host", [FLOODER, UNKNOWN_SOURCE])
async def test_forged_request_does_not_affect_a_call(phone: Phone, raw: RawPhone, host: str) -> None:
    call = await LiveCall.make(phone, raw)
    ours = call.dialog.to.partition("tag=")[2]
    tags = [
        ("wrong", ours), (call.dialog.tag, "wrong"), ("", ours), (ours, call.dialog.tag),
        (call.dialog.tag + "1", ours), (call.dialog.tag[:-1], ours), (call.dialog.tag, ours[:-1]),
        *((token_hex(4), token_hex(16)) for _ in range(40)),
    ]  # fmt: skip
    async with RawPhone(phone.target, host) as forger:
        for (theirs, ours), method in itertools.product(tags, FORGERIES):
            to = f"<sip:100@127.0.0.1>;tag={ours}"
            dialog = Dialog(call.dialog.call_id, theirs, to, call.dialog.target, call.dialog.cseq + 5)
            forger.send(
                forger.request(method, dialog, body=forger.offer("0", "inactive") if method == "INVITE" else "")
            )
        await raw.wait_processed()
        answers = {int(answer.split()[1]) for answer in iter_received(forger)}
    assert answers <= ({481} if host == FLOODER else set())
    assert not call.leg.ended.done()
    assert not call.leg.on_hold
    await assert_audio_flows(phone, raw, call.media)
    await call.end()


def iter_received(phone: RawPhone) -> list[bytes]:
    """The messages received so far."""
    return [phone.sip.received.get_nowait() for _ in range(phone.sip.received.qsize())]


async def test_forged_cancel_does_not_affect_a_ringing_call(phone: Phone, raw: RawPhone) -> None:
    dialog = raw.dialog()
    branch = raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    await leg.send_ringing()
    for host in (FLOODER, UNKNOWN_SOURCE):
        async with RawPhone(phone.target, host) as forger:
            for guess in (branch + "1", branch[:-1], *(forger.branch() for _ in range(20))):
                forger.send(forger.request("CANCEL", dialog, branch=guess))
            forger.send(forger.request("CANCEL", dialog, branch=branch))  # with its own address in Via
            await raw.wait_processed()
    assert not leg.ended.done()
    await leg.reject(486)
    await wait_ended(leg)


async def test_flood_of_unmatched_responses_is_ignored(phone: Phone, raw: RawPhone) -> None:
    leg, callee = await place_call(phone, raw)
    statuses = itertools.cycle(["200 OK", "180 Ringing", "401 Unauthorized", "486 Busy Here", "302 Moved", "503 No"])
    async with RawPhone(phone.target, FLOODER) as flooder:
        numbers = itertools.count()

        def answer() -> None:
            branch, tag = f"z9hG4bKPj{next(numbers)}", token_hex(8)
            text = callee.invite.text.replace("\n", "\r\n").partition("\r\n")[2]
            spoilt = text.replace("branch=", f"branch={branch}").replace(";tag=", f";tag={tag}")
            flooder.send(f"SIP/2.0 {next(statuses)}\r\n{spoilt}\r\n\r\n".encode())

        async with assert_even_audio(phone):
            await flood(answer)
            await raw.wait_processed()
    assert not leg.ended.done()
    assert not leg.ringing.done()
    callee.reject("486 Busy Here")
    assert (await wait_ended(leg)).code == 486
