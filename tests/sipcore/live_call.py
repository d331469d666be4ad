"""A call between a raw phone and the endpoint under test, and assertions that it has audio in both directions."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import pytest

from sipcore.dialogs.leg import Leg, LegEnd, Media
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone, Rtp
from tests.sipcore.tones import from_mulaw, loudest_hz, mulaw, tone

SENT_HZ, RECEIVED_HZ = 600, 440


@dataclass
class LiveCall:
    """An answered call from a raw phone."""

    phone: Phone
    raw: RawPhone
    dialog: Dialog
    leg: Leg
    media: Media
    answer: Message

    @classmethod
    async def make(cls, phone: Phone, raw: RawPhone, sdp: str | None = None, headers: tuple[str, ...] = ()) -> LiveCall:
        """Call and be answered."""
        dialog = raw.dialog()
        raw.invite(dialog, raw.offer("0") if sdp is None else sdp, headers)
        leg = await phone.next_leg()
        answering = asyncio.create_task(leg.answer())
        answer = await raw.complete_invite(dialog)
        return cls(phone, raw, dialog, leg, await asyncio.wait_for(answering, 5), answer)

    async def send_offer(self, sdp: str, method: str = "INVITE", headers: tuple[str, ...] = ()) -> Message:
        """Send a request with an offer within the call; returns its final response, acknowledged."""
        self.dialog.cseq += 1
        branch = self.raw.branch()
        self.raw.send(self.raw.request(method, self.dialog, body=sdp, branch=branch, headers=headers))
        answer = await self.raw.final_response(method)
        if method == "INVITE":
            self.raw.acknowledge(self.dialog, answer, branch)
        return answer

    async def end(self) -> LegEnd:
        """Hang up from the raw phone."""
        return await end_call(self.raw, self.dialog, self.leg)


async def end_call(raw: RawPhone, dialog: Dialog, leg: Leg) -> LegEnd:
    """Hang up from the raw phone, and release the leg's slot."""
    await raw.bye(dialog)
    return await wait_ended(leg)


async def wait_ended(leg: Leg) -> LegEnd:
    """Wait for the leg's end and release its slot."""
    end = await asyncio.wait_for(leg.ended, 5)
    leg.release()
    return end


async def assert_audio_flows(phone: Phone, raw: RawPhone, media: Media | None, *, kind: int = 0) -> None:
    """Half a second of tone in each direction of a leg's media, which is not None. `kind`: the expected payload type;
    only PCMU (0) is decoded."""
    assert media is not None
    track = phone.audio.follow(media.slot)
    while not raw.rtp.received.empty():
        raw.rtp.received.get_nowait()
    phone.pump.write(media.slot, tone(media.rate, SENT_HZ, 0.4))
    got: list[Rtp] = []
    samples = tone(8000, RECEIVED_HZ, 0.4)
    for number in range(20):
        raw.send_rtp(Rtp(0, number + 1000, number * 160, mulaw(samples[160 * number : 160 * (number + 1)]), not number))
        got.append(await raw.next_rtp())
        phone.audio.read()
    await phone.audio.ticks(4)
    kinds = [packet.kind for packet in got]
    assert set(kinds) == {kind}, kinds
    if kind == 0:
        received = from_mulaw(b"".join(packet.payload for packet in got))
        assert loudest_hz(received, 8000) == pytest.approx(SENT_HZ, abs=20)
    assert loudest_hz(track.received, media.rate) == pytest.approx(RECEIVED_HZ, abs=20)


async def place_call(phone: Phone, raw: RawPhone, headers: str = "") -> tuple[Leg, RawCallee]:
    """An outbound call whose INVITE has reached the raw phone. `headers`: of the URI."""
    leg = await phone.endpoint.call(f"sip:+49301@{raw.host}:{raw.sip.port}{headers}")
    return leg, await RawCallee.wait_for_invite(raw)


def media_port(sdp: str) -> int:
    """The port of the audio in an SDP."""
    match = re.search(r"^m=audio (\d+)", sdp, re.MULTILINE)
    assert match, sdp
    return int(match[1])
