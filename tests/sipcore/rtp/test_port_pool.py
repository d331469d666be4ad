"""The RTP port pool: the ports that calls get, and calls without free ports."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from sipcore import _native
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import Leg
from tests.peers.ports import RTP_PORTS
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Dialog, RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRST = RTP_PORTS[0] + 1000


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.log_guard_events()
    async with RawPhone(phone.target) as raw:
        yield raw


@pytest.fixture
def pairs() -> Iterator[list[int]]:
    """The RTP ports of a range of three pairs, none of them used."""
    _native.rtp_ports(FIRST, FIRST + 5)
    yield [FIRST, FIRST + 2, FIRST + 4]
    _native.rtp_ports(*RTP_PORTS)


async def connected(phone: Phone, raw: RawPhone) -> tuple[Dialog, Leg, int]:
    """A call, and its local RTP port."""
    dialog = raw.dialog()
    raw.invite(dialog, raw.offer("0"))
    leg = await phone.next_leg()
    answering = asyncio.create_task(leg.answer())
    answer = await raw.complete_invite(dialog)
    await answering
    port = re.search(r"m=audio (\d+)", answer.body)
    assert port
    return dialog, leg, int(port[1])


async def over(raw: RawPhone, dialog: Dialog, leg: Leg) -> None:
    """End the call, which releases its ports."""
    left = _native.rtp_ports_left()
    await raw.bye(dialog)
    await asyncio.wait_for(leg.ended, 5)
    leg.release()
    while _native.rtp_ports_left() == left:
        await raw.options()


async def test_used_ports_are_quarantined_while_others_are_free(phone: Phone, raw: RawPhone, pairs: list[int]) -> None:
    """Then the pair whose quarantine ends first is used."""
    used = []
    for _ in range(5):
        dialog, leg, port = await connected(phone, raw)
        used.append(port)
        await over(raw, dialog, leg)
    assert used == [*pairs, *pairs[:2]]


async def test_port_in_use_by_another_program_is_skipped(phone: Phone, raw: RawPhone, pairs: list[int]) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", pairs[0] + 1))
        calls = [await connected(phone, raw) for _ in range(2)]
        assert [port for _, _, port in calls] == pairs[1:]
    for dialog, leg, _ in calls:
        await over(raw, dialog, leg)


async def test_invite_without_a_free_port_gets_503_and_one_log_line(
    phone: Phone, raw: RawPhone, pairs: list[int]
) -> None:
    calls = [await connected(phone, raw) for _ in pairs]
    assert _native.rtp_ports_left() == 0
    refused = raw.dialog()
    raw.invite(refused, raw.offer("0"))
    answer = await raw.final_response("INVITE")
    assert (answer.status, answer.header("Retry-After")) == (503, "10")
    assert phone.incoming.empty()
    with pytest.raises(InviteError, match="rtp_ports") as caught:
        await phone.endpoint.call(phone.uri)
    assert caught.value.kind == "no_local_port"
    with capture_logs() as logs:
        phone.endpoint.log_guard_events()
    assert [(line["event"], line["calls"]) for line in logs] == [("sip.no_rtp_port", 1)]
    assert not any(leg.ended.done() for _, leg, _ in calls)
    await over(raw, *calls.pop()[:2])
    calls.append(await connected(phone, raw))
    for dialog, leg, _ in calls:
        await over(raw, dialog, leg)


async def test_port_range_in_use_by_other_programs_fails_only_that_call(
    phone: Phone, raw: RawPhone, pairs: list[int]
) -> None:
    call = await connected(phone, raw)
    with contextlib.ExitStack() as stack:
        for port in range(FIRST + 2, RTP_PORTS[0] + 1500):
            stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)).bind(("127.0.0.1", port))
        raw.invite(raw.dialog(), raw.offer("0"))
        answer = await raw.final_response("INVITE")
        assert (answer.status, answer.header("Retry-After")) == (503, "10")
        with pytest.raises(InviteError):
            await phone.endpoint.call(phone.uri)
    with capture_logs() as logs:
        phone.endpoint.log_guard_events()
    assert [(line["event"], line["calls"]) for line in logs] == [("sip.no_rtp_port", 2)]
    assert not call[1].ended.done()
    again = await connected(phone, raw)
    await over(raw, *again[:2])
    await over(raw, *call[:2])
