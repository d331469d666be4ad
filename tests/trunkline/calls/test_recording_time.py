"""A recording keeps the time of its call: a tone that the caller sends n ms after the answer lies n ms after its begin,
whatever holds, streams and losses were before."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import pairwise
from threading import Event, Thread
from typing import Any, Final, Self

import numpy as np
import pytest
import pytest_asyncio

from calls.session.lifecycle import CallLifecycle
from config.clock import utc_now
from media.audio_port import UNREAD_MS, Samples
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.tones import tone
from tests.trunkline.phone_calls import AgentCall, agent_call, scripted
from tests.trunkline.recording_analysis import read_wav
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import ENCODERS, FRAME, PCMA, SILENCE, PhoneCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
PERIOD_S: Final = 0.02
BEEP: Final = tone(8000, 1000, 0.1)
HOLD_S: Final = 1.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), scripted) as local_server:
        yield local_server


class SteadyPhone(PhoneCall):
    """Sends a packet every 20 ms by its own clock, whatever it receives. `beeps_s`: when it sent the beginning of each
    beep, on CLOCK_MONOTONIC."""

    def __init__(self, phone: RawPhone, number: str) -> None:
        super().__init__(phone, number)
        self.beeps_s: list[float] = []
        self.sends = True
        self._waiting: deque[bytes] = deque()
        self._stopping = Event()
        self._sending = Thread(target=self._send_steadily, daemon=True)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._sending.start()
        return self

    async def __aexit__(self, failure: type[BaseException] | None = None, *more: object) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._sending.join)
        await super().__aexit__(failure, *more)

    async def beep(self) -> None:
        """Send a tone of 100 ms, with pauses around it."""
        await asyncio.sleep(0.2)
        coded = ENCODERS[self.codec](BEEP)
        self._waiting.extend(coded[at : at + FRAME] for at in range(0, len(coded), FRAME))
        await asyncio.sleep(0.3)

    def _send_next(self) -> None:
        """Nothing is sent for a received packet."""

    def _send_steadily(self) -> None:
        with socket.fromfd(self._fd, socket.AF_INET, socket.SOCK_DGRAM) as own:
            begin_s, packet = time.monotonic(), 0
            while not self._stopping.is_set():
                packet += 1
                time.sleep(max(begin_s + packet * PERIOD_S - time.monotonic(), 0))
                if self.sends:
                    own.sendto(Rtp(self.codec, packet, packet * FRAME, self._payload()).pack(), self._target)

    def _payload(self) -> bytes:
        if not self._waiting:
            return SILENCE[self.codec]
        if len(self._waiting) == len(BEEP) // FRAME:
            self.beeps_s.append(time.monotonic())
        return self._waiting.popleft()

    @property
    def _fd(self) -> int:
        return int(self.phone.rtp.transport.get_extra_info("socket").fileno())

    @property
    def _target(self) -> tuple[str, int]:
        assert self.phone._rtp_target is not None
        return self.phone._rtp_target


@pytest.fixture
def answers_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When calls are answered, on CLOCK_MONOTONIC. The wall clock is set 30 s forward right after that."""
    answers: list[float] = []
    mark_answered = CallLifecycle.mark_answered

    def mark(lifecycle: CallLifecycle) -> datetime:
        answers.append(time.monotonic())
        return mark_answered(lifecycle)

    monkeypatch.setattr(CallLifecycle, "mark_answered", mark)
    monkeypatch.setattr("calls.session.lifecycle.utc_now", lambda: utc_now() - timedelta(seconds=30))
    return answers


def beginnings_s(side: Samples, rate: int) -> list[float]:
    """When each beep of a channel begins."""
    loud = [-1.0, *(np.flatnonzero(np.abs(side.astype(np.int32)) > 2000) / rate)]
    return [float(at) for before, at in pairwise(loud) if at - before > 0.1]


async def offer(phone: SteadyPhone, *attributes: str) -> None:
    assert (await phone.reinvite(phone.offer("8 101" if phone.codec == PCMA else "0 101", *attributes))).status == 200


async def hold(phone: SteadyPhone, direction: str) -> None:
    """A hold by the caller, who sends as its offer says."""
    phone.sends = direction == "sendonly"
    await offer(phone, direction)
    if phone.sends:
        await phone.beep()
    await asyncio.sleep(HOLD_S)
    phone.sends = True
    await offer(phone)


async def client_hold(call: AgentCall, phone: SteadyPhone) -> None:
    await call.local_server.client.v1("POST", f"calls/{call.call_id}/hold")
    await phone.beep()
    await call.local_server.client.v1("POST", f"calls/{call.call_id}/unhold")


async def stall_the_engine(local_server: LocalServer) -> None:
    """The tick thread does nothing for longer than unread audio is kept."""
    (audio,) = local_server.server.engine._by_slot.values()
    done = Event()

    def stall(_: Any) -> tuple[()]:
        time.sleep(UNREAD_MS / 1000 + HOLD_S)
        done.set()
        return ()

    audio._submit(audio, stall)
    assert await asyncio.to_thread(done.wait, 10)


async def test_a_tone_lies_in_the_recording_where_the_calls_clock_says(
    local_server: LocalServer, answers_s: list[float]
) -> None:
    async with agent_call(local_server, "Yes.", SteadyPhone) as call:
        phone = call.phone
        assert isinstance(phone, SteadyPhone)
        await phone.beep()
        for direction in ("inactive", "sendonly", "recvonly"):
            await hold(phone, direction)
            await phone.beep()
        await client_hold(call, phone)
        await phone.beep()
        await stall_the_engine(local_server)
        await phone.beep()
        phone.codec = PCMA
        await offer(phone)
        await phone.beep()
        await phone.hang_up()
        await call.stored()
    rate, sides = read_wav(await local_server.client.recording(call.call_id))
    sent = [at - answers_s[0] for at in phone.beeps_s]
    assert local_server.server.engine.stats.lost_seconds >= HOLD_S / 2
    assert beginnings_s(sides[:, 0], rate) == pytest.approx(sent, abs=0.04)
