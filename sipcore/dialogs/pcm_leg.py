"""A call leg without SIP and RTP: its peer is a client of this process, which exchanges PCM with it.
Event loop only."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final, Literal

from media.dtmf.keys import DtmfMethod, normalize_dtmf
from sipcore.audio.call_quality import CallQuality
from sipcore.audio.dtmf_sending import DtmfSender
from sipcore.audio.pcm_channel import PcmChannel
from sipcore.audio.pump import Pump
from sipcore.dialogs.leg import InviteFacts, LegEnd, Media
from sipcore.messages.headers import NameAddr


class PcmLeg:
    """A leg whose peer is there and has answered: a `CallLeg`. `on_digits` and `on_peer_hangup` are what the peer
    does; `channel` has its audio."""

    def __init__(
        self,
        pump: Pump,
        channel: PcmChannel,
        slot: int,
        *,
        leg_id: str,
        direction: Literal["inbound", "outbound"],
    ) -> None:
        """`slot`: that of the channel in the pump."""
        loop, nobody = asyncio.get_running_loop(), NameAddr("", "")
        self.facts = InviteFacts(leg_id, direction, "", "", nobody, nobody)
        self.channel: Final = channel
        self.ended: asyncio.Future[LegEnd] = loop.create_future()
        self.ringing: asyncio.Future[None] = loop.create_future()
        self.answered: asyncio.Future[None] = loop.create_future()
        self.on_digit: Callable[[str, DtmfMethod], None] | None = None
        self.on_hold = False
        self.on_hold_change: Callable[[bool], None] | None = None
        self.on_dtmf_sending: Callable[[bool], None] | None = None
        self._pump = pump
        self._media = Media(slot, pump.rate(slot), "PCMU" if channel.telephone else "L16")
        self._released = False
        self._dtmf = DtmfSender(pump, self.ended, self._report_dtmf_sending)
        if direction == "outbound":
            self.ringing.set_result(None)
            self.answered.set_result(None)

    @property
    def sip_call_id(self) -> str:
        """The leg's id."""
        return self.facts.sip_call_id

    @property
    def has_media(self) -> bool:
        """True: the audio is there from the beginning."""
        return True

    @property
    def media(self) -> Media:
        """The audio."""
        return self._media

    @property
    def is_referring(self) -> bool:
        """False: the peer cannot be referred to another target."""
        return False

    @property
    def is_established(self) -> bool:
        """True: the peer is connected."""
        return True

    async def wait_established(self) -> None:
        """Does nothing."""

    async def send_ringing(self) -> None:
        """Does nothing: the peer waits."""

    async def answer(self) -> Media:
        """Returns the audio. Raises `ConnectionError` when the leg has ended."""
        return await self.wait_connected()

    async def wait_connected(self) -> Media:
        """Returns the audio. Raises `ConnectionError` when the leg has ended."""
        if self.ended.done():
            raise ConnectionError("the leg has ended")
        return self._media

    async def latest_status(self) -> int:
        """200: the peer has answered."""
        return 200

    async def reject(self, code: int) -> None:
        """End the leg."""
        self._end(by_peer=False)

    async def hangup(self, cause: int) -> None:
        """End the leg."""
        self._end(by_peer=False)

    def on_digits(self, digits: str) -> None:
        """The peer has pressed these keys."""
        for digit in normalize_dtmf(digits):
            if self.on_digit is not None:
                self.on_digit(digit, "info")

    def on_peer_hangup(self) -> None:
        """The peer has hung up, or is gone."""
        self._end(by_peer=True)

    def _end(self, *, by_peer: bool) -> None:
        if not self.ended.done():
            self.ended.set_result(LegEnd(0, "", by_peer=by_peer, has_sip=False))

    async def send_digits(self, digits: str) -> None:
        """Send DTMF tones, as `CallLeg.send_digits`."""
        await self._dtmf.send(digits, lambda: self._media.slot)

    def _report_dtmf_sending(self, on: bool) -> None:
        if self.on_dtmf_sending:
            self.on_dtmf_sending(on)

    def rtp_silence_s(self) -> float:
        """Seconds since the peer's last frame, or since the audio began."""
        return (time.monotonic_ns() - self._pump.slot_stats(self._media.slot).last_packet_ns) / 1e9

    def rtp_refused_s(self) -> float:
        """Infinite: there is no network to refuse anything."""
        return math.inf

    async def probe(self) -> asyncio.Future[int]:
        """Raises `ConnectionError`: the connection itself shows whether the peer is there."""
        raise ConnectionError("the leg has no dialog to probe")

    def quality(self) -> CallQuality:
        """Raises `KeyError`: without RTP nothing is lost, and nothing is measured."""
        raise KeyError("no RTP")

    def release(self) -> None:
        """Release the pump's slot. Idempotent."""
        if not self._released:
            self._pump.release(self._media.slot)
        self._released = True
