"""When a peer that has fallen silent is asked whether it still has the call, and when it has vanished."""

from __future__ import annotations

import asyncio
import math

import pytest

from calls.session.vanished_peer import (
    ANSWER_S,
    POLL_S,
    REPEAT_S,
    SILENT_S,
    PeerSigns,
    VanishedPeer,
    wait_vanished,
)
from tests.calls.session.transfer.virtual_transfers import SilentPump
from tests.fakes.fake_leg import Phone
from tests.virtual_time import virtually

SPEAKING = PeerSigns(0.02, math.inf)


def asked(now_s: float, signs: PeerSigns) -> VanishedPeer:
    """A peer that was asked at that time."""
    peer = VanishedPeer()
    assert peer.check(now_s, signs).action == "ask"
    peer.on_asked(now_s)
    return peer


def test_a_peer_that_sends_rtp_is_not_asked() -> None:
    check = VanishedPeer().check(100.0, SPEAKING)
    assert (check.action, check.next_s) == ("wait", pytest.approx(1.98))


def test_icmp_messages_are_no_reason_to_ask_a_peer_that_sends_rtp() -> None:
    assert VanishedPeer().check(100.0, PeerSigns(0.1, 0.05)).action == "wait"


def test_a_silent_peer_is_asked_at_once_if_its_port_is_closed() -> None:
    assert VanishedPeer().check(100.0, PeerSigns(1.9, 0.1)).action == "wait"
    assert VanishedPeer().check(100.0, PeerSigns(2.0, 0.1)).action == "ask"


def test_another_silent_peer_is_asked_later() -> None:
    peer = VanishedPeer()
    assert peer.check(100.0, PeerSigns(SILENT_S - 0.1, math.inf)).action == "wait"
    assert peer.check(100.1, PeerSigns(SILENT_S, math.inf)).action == "ask"


def test_it_is_asked_until_the_question_could_be_sent() -> None:
    peer = VanishedPeer()
    assert [peer.check(100.0 + n, PeerSigns(2.0 + n, 0.1)).action for n in range(3)] == ["ask"] * 3


def test_without_an_answer_a_closed_port_decides() -> None:
    peer = asked(100.0, PeerSigns(2.0, 0.1))
    assert peer.check(100.0 + ANSWER_S - 0.1, PeerSigns(3.9, 0.1)).action == "wait"
    assert peer.check(100.0 + ANSWER_S, PeerSigns(4.0, 0.1)).action == "vanished"


def test_a_closed_port_before_the_question_does_not_count() -> None:
    """The network may have gone down since."""
    peer = asked(100.0, PeerSigns(2.0, 0.1))
    assert {peer.check(100.0 + s, PeerSigns(2.0 + s, 0.1 + s)).action for s in (2, 4, 6)} == {"wait"}


def test_silence_without_an_answer_does_not_decide() -> None:
    peer = asked(100.0, PeerSigns(SILENT_S, math.inf))
    assert peer.check(107.9, PeerSigns(12.9, math.inf)).action == "wait"
    assert peer.check(100.0 + REPEAT_S, PeerSigns(13.0, math.inf)).action == "ask"


@pytest.mark.parametrize("status", [200, 401, 404, 408, 501, 503])
def test_a_peer_that_answers_has_not_vanished(status: int) -> None:
    peer = asked(100.0, PeerSigns(2.0, 0.1))
    assert not peer.on_answer(status)
    assert {peer.check(100.0 + s, PeerSigns(2.0 + s, 0.01)).action for s in (1, 3, 7.9)} == {"wait"}
    assert peer.check(100.0 + REPEAT_S, PeerSigns(10.0, 0.01)).action == "ask"


def test_a_peer_that_does_not_know_the_dialog_has_vanished() -> None:
    assert asked(100.0, PeerSigns(SILENT_S, math.inf)).on_answer(481)


def test_a_peer_that_sends_rtp_again_is_there() -> None:
    peer = asked(100.0, PeerSigns(2.0, 0.1))
    assert peer.check(101.0, SPEAKING).action == "wait"
    assert peer.check(104.0, PeerSigns(2.0, 0.1)).action == "wait"
    assert peer.check(108.0, PeerSigns(6.0, 0.1)).action == "ask"


def test_a_peer_that_holds_the_call_is_asked_only_if_its_port_is_closed() -> None:
    peer = VanishedPeer()
    check = peer.check(100.0, PeerSigns(0.0, math.inf, on_hold=True))
    assert (check.action, check.next_s) == ("wait", POLL_S)
    assert peer.check(160.0, PeerSigns(0.0, 0.1, on_hold=True)).action == "ask"
    peer.on_asked(160.0)
    assert peer.check(164.0, PeerSigns(0.0, 4.1, on_hold=True)).next_s == POLL_S
    assert peer.check(165.0, PeerSigns(0.0, 0.1, on_hold=True)).action == "vanished"


# ---- a leg ----


class Answered:
    """An answered leg on a virtual clock, whose peer goes silent now. `closed`: nobody listens on its RTP port."""

    def __init__(self, *, closed: bool) -> None:
        pump = SilentPump()
        self.phone = Phone(pump)
        self._pump, self._closed = pump, closed

    async def __aenter__(self) -> Answered:
        await self.phone.leg.answer()
        self._pump.vanished[self.phone.slot] = asyncio.get_running_loop().time()
        if self._closed:
            self._pump.closed.add(self.phone.slot)
        self.waiting = asyncio.create_task(wait_vanished(self.phone.leg))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.waiting.cancel()
        await asyncio.wait((self.waiting,))

    @property
    def questions(self) -> list[asyncio.Future[int]]:
        """The OPTIONS that were sent."""
        return self.phone.dialog.probes


@virtually
async def test_a_killed_peer_has_vanished_within_5_s() -> None:
    async with Answered(closed=True) as call:
        async with asyncio.timeout(5):
            await call.waiting
        assert len(call.questions) == 1
        assert call.questions[0].cancelled()


@virtually
async def test_a_peer_that_answers_is_asked_again_and_again() -> None:
    async with Answered(closed=True) as call:
        for number in range(3):
            await asyncio.sleep(REPEAT_S if number else 2.5)
            assert len(call.questions) == number + 1
            call.questions[-1].set_result(200)
        assert not call.waiting.done()


@virtually
async def test_a_silent_peer_that_answers_with_481_has_vanished() -> None:
    async with Answered(closed=False) as call:
        await asyncio.sleep(SILENT_S + 1)
        assert not call.waiting.done()
        call.questions[0].set_result(481)
        await asyncio.wait_for(call.waiting, 1)


@virtually
async def test_a_silent_peer_that_does_not_answer_may_be_there() -> None:
    async with Answered(closed=False) as call:
        await asyncio.sleep(30)
        assert not call.waiting.done()
        assert len(call.questions) == 4


@virtually
async def test_a_peer_that_has_taken_a_refer_is_not_asked() -> None:
    async with Answered(closed=True) as call:
        call.phone.leg._state.sending_refer = True
        await asyncio.sleep(60)
        assert not call.questions


@virtually
async def test_a_peer_that_cannot_be_asked_now_has_not_vanished() -> None:
    async with Answered(closed=True) as call:
        call.phone.dialog.error = ConnectionError("busy")
        await asyncio.sleep(10)
        assert not call.waiting.done()
        call.phone.dialog.error = None
        async with asyncio.timeout(3):
            await call.waiting
