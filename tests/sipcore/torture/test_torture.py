"""Torture messages (RFC 4475): valid ones that look wrong are served, invalid ones rejected or dropped, over datagrams
and over a stream, and the next caller is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.torture.rfc4475_messages import DROPPED, INVALID, RESPONSES, SERVED, VALID, Torture, response

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=80)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw
    phone.endpoint.log_guard_events()


async def outcome_of_leg(phone: Phone) -> str | None:
    """The outcome of an inbound call; it is rejected."""
    if phone.incoming.empty():
        return None
    await phone.incoming.get_nowait().reject(486)
    return SERVED


def outcome_of_status(status: int, torture: Torture) -> str | None:
    """The outcome by a final status; 486 is that of a leg."""
    if status < 200:
        return None
    return SERVED if status == 486 or (status == 200 and torture.method == "OPTIONS") else str(status)


async def over_datagrams(phone: Phone, raw: RawPhone, torture: Torture) -> str:
    """Send it, then OPTIONS; returns its outcome before the response to those."""
    raw.send(torture.spell(raw, "UDP"))
    probe = raw.dialog()
    raw.send(raw.request("OPTIONS", probe))
    outcome = None
    while (message := await raw.next_message()).header("Call-ID") != probe.call_id:
        outcome = outcome or outcome_of_status(message.status, torture)
    return await outcome_of_leg(phone) or outcome or DROPPED


async def over_a_stream(phone: Phone, raw: RawPhone, torture: Torture) -> str:
    """The same on a connection of its own, which may be closed or left waiting for more."""
    host, port = phone.target.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(torture.spell(raw, "TCP"))
        async with asyncio.timeout(0.3 if DROPPED in torture.outcomes else 5):
            while line := await reader.readline():
                if line.startswith(b"SIP/2.0 ") and (found := outcome_of_status(int(line.split()[1]), torture)):
                    return await outcome_of_leg(phone) or found
                if line.startswith(b"SIP/2.0 100"):
                    await (await phone.next_leg()).reject(486)
                    return SERVED
    except TimeoutError:
        pass
    finally:
        writer.close()
    return await outcome_of_leg(phone) or DROPPED


@pytest.mark.parametrize("way", [over_datagrams, over_a_stream], ids=["udp", "tcp"])
@pytest.mark.parametrize("torture", VALID + INVALID, ids=lambda torture: f"{torture.section} {torture.what}")
async def test_torture_message_is_served_or_rejected(
    phone: Phone, raw: RawPhone, torture: Torture, way: object
) -> None:
    outcome = await way(phone, raw, torture)  # type: ignore[operator]
    assert outcome in torture.outcomes
    while not raw.sip.received.empty():
        raw.sip.received.get_nowait()


@pytest.mark.parametrize("first", RESPONSES.values(), ids=RESPONSES.keys())
async def test_unmatched_torture_response_is_dropped(phone: Phone, raw: RawPhone, first: bytes) -> None:
    raw.send(response(raw, first))
    assert (await raw.options()).status == 200
    assert raw.sip.received.empty()


async def test_calls_are_served_after_torture_messages(phone: Phone, raw: RawPhone) -> None:
    call = await phone.call()
    await call.end()
