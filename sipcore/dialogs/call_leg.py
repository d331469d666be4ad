"""A call leg as a call session uses it, whatever carries its signalling and its audio. Event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from media.dtmf.keys import DtmfMethod
from sipcore.audio.call_quality import CallQuality
from sipcore.dialogs.leg import InviteFacts, LegEnd, Media


class CallLeg(Protocol):
    """`sipcore.dialogs.leg.Leg` is one with a SIP dialog, `sipcore.dialogs.pcm_leg.PcmLeg` one without."""

    facts: InviteFacts
    ended: asyncio.Future[LegEnd]
    ringing: asyncio.Future[None]
    """Of an outbound leg: the peer rings."""
    answered: asyncio.Future[None]
    """Of an outbound leg: the peer has answered."""
    on_digit: Callable[[str, DtmfMethod], None] | None
    """Called with each DTMF digit of the peer and the method that carried it."""
    on_hold: bool
    """The peer has put us on hold."""
    on_hold_change: Callable[[bool], None] | None
    """Called when the peer puts us on hold, or resumes."""
    on_dtmf_sending: Callable[[bool], None] | None
    """Called when `send_digits` begins to send DTMF, and when it has ended."""

    @property
    def sip_call_id(self) -> str:
        """The identifier of the leg in the log: the SIP Call-ID, if it has one."""

    @property
    def has_media(self) -> bool:
        """Audio flows or has flowed."""

    @property
    def media(self) -> Media | None:
        """The audio stream; None before there is one."""

    @property
    def is_referring(self) -> bool:
        """The peer is asked to call another target, and need not send audio."""

    @property
    def is_established(self) -> bool:
        """After the answer: the peer knows of it. An INVITE whose 2xx response gets no ACK has no call."""

    async def wait_established(self) -> None:
        """Wait, after the answer, until the peer knows of it or the leg has ended."""

    async def send_ringing(self) -> None:
        """Tell the peer that its call is being handled."""

    async def answer(self) -> Media:
        """Answer the peer's call. Raises `ConnectionError` when the leg ends first."""

    async def wait_connected(self) -> Media:
        """Wait until the call is answered and audio flows. Raises `ConnectionError` when the leg ends first."""

    async def latest_status(self) -> int:
        """The SIP status of the latest response of the peer; 0 before any."""

    async def reject(self, code: int) -> None:
        """Refuse the peer's call with a SIP status."""

    async def hangup(self, cause: int) -> None:
        """End the leg with a Q.850 cause. Harmless on a leg that has ended."""

    async def send_digits(self, digits: str) -> None:
        """Send DTMF digits after all speech that is queued; returns when they have been sent. Raises `ValueError` for
        an invalid digit, and `ConnectionError` when the leg has no audio (any more)."""

    def rtp_silence_s(self) -> float:
        """Seconds since the peer's last audio; 0 before there is audio, and while it need not send any."""

    def rtp_refused_s(self) -> float:
        """Seconds since the network said that nobody takes our audio; infinite if it has not."""

    async def probe(self) -> asyncio.Future[int]:
        """Ask the peer whether it still has the call; returns the future SIP status of its answer. Raises
        `ConnectionError` if it cannot be asked."""

    def quality(self) -> CallQuality:
        """The audio quality of both directions so far. Raises `KeyError` where it is not measured."""

    def release(self) -> None:
        """Release the audio. Idempotent."""
