"""A call leg as the rest of the program sees it: facts, verbs and futures, all on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from media.audio_port import TICK_MS
from media.dtmf.keys import DtmfMethod, normalize_dtmf
from sipcore.audio.call_quality import CallQuality, call_quality
from sipcore.audio.pump import Pump, SlotStats
from sipcore.messages import reason_header
from sipcore.messages.captured_headers import CapturedHeaders
from sipcore.messages.headers import HeaderLines, NameAddr
from sipcore.messages.reason_header import Q850Cause
from sipcore.messages.refer import ReferRequest
from sipcore.security.srtp import SrtpKeying


@dataclass(frozen=True)
class Media:
    """The sound of a leg: its slot in the pump, the rate in Hz, the codec's name, and how the keys of its encryption
    are agreed on (None: it is not encrypted)."""

    slot: int
    rate: int
    codec: str
    keying: SrtpKeying | None = None


@dataclass(frozen=True)
class LegEnd:
    """Why a leg ended: the final SIP status, its reason phrase, and whether the other side did it. The status is 0 when
    an INVITE of ours got no final answer or could not be sent. `cause`: what whoever ended it gave as Q.850 cause.
    `elsewhere`: the caller was answered by another phone."""

    code: int
    reason: str
    by_peer: bool
    cause: Q850Cause | None = None
    completed_elsewhere: bool = False


@dataclass(frozen=True)
class InviteFacts:
    """What is known when a leg appears. `source` is the address that an INVITE came from, "" when we sent it; users and
    names of inbound legs come from the network."""

    sip_call_id: str
    direction: Literal["inbound", "outbound"]
    source: str
    request_user: str
    to_addr: NameAddr
    from_addr: NameAddr
    authorization: str = field(default="", repr=False)
    """What an inbound INVITE answers to a challenge of ours (RFC 3261, 20.7); "" when it does not."""
    request_host_port: str = ""
    """The `host[:port]` of an inbound INVITE's request URI."""
    from_tag: str = ""
    """The From tag of an inbound INVITE."""
    headers: CapturedHeaders = field(default_factory=dict)
    """What else an INVITE carried (`sipcore.messages.captured_headers`); nothing when we sent it."""


class DialogControl(Protocol):
    """What a leg needs of PJSIP; every method runs on the owner's thread by itself."""

    def respond(self, code: int, headers: HeaderLines) -> Coroutine[Any, Any, None]:
        """Answer the INVITE with a provisional or final status."""

    def bye(self, reason: str) -> Coroutine[Any, Any, None]:
        """End the dialog in whatever way its state asks for, with the value of a Reason header (RFC 3326)."""

    def latest_status(self) -> Coroutine[Any, Any, int]:
        """The status of the latest response to our INVITE; 0 when none has come, or when the call is over."""


class Leg:
    """One dialog with a peer. Use it on the event loop only."""

    def __init__(self, facts: InviteFacts, dialog: DialogControl, pump: Pump, loop: asyncio.AbstractEventLoop) -> None:
        self.facts = facts
        self.ended: asyncio.Future[LegEnd] = loop.create_future()
        self.ringing: asyncio.Future[None] = loop.create_future()
        """Of an outbound leg: it rings, or the peer says in another way that it is on its way (a status 101..199)."""
        self.answered: asyncio.Future[None] = loop.create_future()
        """Of an outbound leg: the peer has accepted the call."""
        self.on_digit: Callable[[str, DtmfMethod], None] | None = None
        """A key of the peer, and how SIP or RTP brought it."""
        self.on_hold = False
        self.on_hold_change: Callable[[bool], None] | None = None
        """The peer has put us on hold, or has come back."""
        self.on_dtmf_sending: Callable[[bool], None] | None = None
        """Keys begin to be sent, or are not sent any more."""
        self.may_be_replaced_by: Callable[[str], bool] | None = None
        """Whether somebody at that address may take the other side's place (RFC 3891); None: only from where the other
        side is. Called on PJSIP's threads."""
        self.on_refer: Callable[[ReferRequest, Callable[[], Awaitable[None]]], Awaitable[Leg | int]] | None = None
        """Calls whom the other side names (RFC 3515): the answered leg, which is given up for this one to go on with,
        or the SIP status that says why there is none. What it is given besides accepts the REFER; without that the
        status is the REFER's own answer. None: every REFER is declined."""
        self._referral: ReferRequest | None = None
        self._dialog = dialog
        self._pump = pump
        self._media: asyncio.Future[Media] = loop.create_future()
        self._codec = ""
        self._dialling = asyncio.Lock()
        self._hung_up = False
        self._our_cause: Q850Cause | None = None
        self._released = False

    @property
    def sip_call_id(self) -> str:
        """The SIP Call-ID."""
        return self.facts.sip_call_id

    @property
    def has_media(self) -> bool:
        """Sound flows or has flowed; on an outbound leg perhaps before the answer (early media)."""
        return self._media.done()

    @property
    def media(self) -> Media | None:
        """The sound, once there is some."""
        return self._media.result() if self._media.done() else None

    async def send_ringing(self) -> None:
        """Send 180."""
        await self._dialog.respond(180, ())

    async def answer(self) -> Media:
        """Send 200 and wait until sound flows. Raises `ConnectionError` when the leg ends first."""
        await self._dialog.respond(200, ())
        return await self.connected()

    async def connected(self) -> Media:
        """Wait until the call is accepted and sound flows. Raises `ConnectionError` when the leg ends first."""
        if self.facts.direction == "outbound":
            await asyncio.wait((self.answered, self.ended), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((self._media, self.ended), return_when=asyncio.FIRST_COMPLETED)
        if not self._media.done() or (self.facts.direction == "outbound" and not self.answered.done()):
            end = self.ended.result()
            raise ConnectionError(f"the leg ended before it had sound: {end.code} {end.reason}")
        return self._media.result()

    async def latest_status(self) -> int:
        """The status of the latest response to our INVITE, 100 included; 0 when the peer has said nothing at all."""
        return await self._dialog.latest_status()

    async def reject(self, code: int, retry_after_s: int | None = None, headers: HeaderLines = ()) -> None:
        """Refuse an inbound leg with a final status."""
        self._hung_up, self._our_cause = True, reason_header.cause_of_status(code)
        reason = () if self._our_cause is None else (("Reason", reason_header.format_reason(self._our_cause)),)
        later = () if retry_after_s is None else (("Retry-After", str(retry_after_s)),)
        await self._dialog.respond(code, (*headers, *reason, *later))

    async def hangup(self, why: int = reason_header.NORMAL_CLEARING) -> None:
        """BYE, CANCEL or a refusal, whatever the state asks for, with a Q.850 cause. Harmless on a leg that has
        ended."""
        if self.ended.done():
            return
        self._hung_up, self._our_cause = True, reason_header.q850_cause(why)
        await self._dialog.bye(reason_header.format_reason(self._our_cause))

    async def send_digits(self, digits: str) -> None:
        """Press keys, 100 ms each and 100 ms apart, once the agent has said what it was given to say; returns when they
        have been sent. `w` and `,` are pauses of 0.5 s. Speech waits meanwhile; a cancelled call sends no further key.
        They go out as RFC 4733 events, or as tones when the peer has negotiated none. SIP INFO is not used: nothing
        tells whether a peer makes use of it (RFC 6086, 1), while tones are heard by whatever listens at the other end.
        Raises `ValueError` for what is no key, and `ConnectionError` when the leg has no sound (any more)."""
        keys = normalize_dtmf(digits)
        async with self._dialling:
            self._is_pressing(True)
            try:
                await self._dial(self._media.result().slot, keys)
            except (asyncio.InvalidStateError, KeyError) as error:
                raise ConnectionError("the leg has no sound to press keys in") from error
            finally:
                self._is_pressing(False)

    def _is_pressing(self, on: bool) -> None:
        if self.on_dtmf_sending:
            self.on_dtmf_sending(on)

    async def _dial(self, slot: int, keys: str) -> None:
        rate = self._pump.rate(slot)
        self._pump.send_dtmf(slot, keys)
        try:
            while (left := self._pump.dtmf_samples_left(slot)) > 0:
                await asyncio.wait((self.ended,), timeout=left / rate + TICK_MS / 1000)
                if self.ended.done():
                    raise ConnectionError("the leg ended before all keys were pressed")
        except asyncio.CancelledError:
            with contextlib.suppress(KeyError):
                self._pump.send_dtmf(slot, "")
            raise

    def rtp_silence_s(self) -> float:
        """Seconds since the last RTP packet came; 0 while the leg has no sound, is on hold or is being transferred."""
        if not self._media.done() or self.on_hold or self._referral:
            return 0.0
        return (time.monotonic_ns() - self.stats().last_packet_ns) / 1e9

    def stats(self) -> SlotStats:
        """Counters of the leg's sound. Raises `KeyError` when it has none (any more)."""
        if not self._media.done():
            raise KeyError("no sound yet")
        return self._pump.slot_stats(self._media.result().slot)

    def quality(self) -> CallQuality:
        """How well both sides hear each other, over all of the leg so far. Raises `KeyError` when it has no sound (any
        more): ask before `release`."""
        if not self._media.done():
            raise KeyError("no sound yet")
        return call_quality(self._pump.rtp_totals(self._media.result().slot), self._codec)

    def release(self) -> None:
        """Give the pump's slot back, once nobody reads or writes it any more; sound that comes later gets none.
        Idempotent."""
        if not self._released and self._media.done():
            self._pump.release(self._media.result().slot)
        self._released = True

    # ---- what the endpoint reports, always on the loop ----

    def _has_taken_over(self, other: Leg) -> None:
        """The sound of another leg is this one's now."""
        self._pump.release(other._media.result().slot)
        other._released = True
        if self.on_hold:
            self._has_media(self._media.result(), False)

    def _begins_anew(self) -> None:
        """Another callee is called, who may let us hear something before the answer as the one before did."""
        if self._media.done() and not self._released:
            self._pump.release(self._media.result().slot)
            self._media = self._media.get_loop().create_future()

    def _has_media(self, media: Media, held: bool) -> None:
        changed, self.on_hold = held != self.on_hold, held
        self._codec = media.codec
        if self._released:
            self._release_late(media.slot)
        elif not self._media.done():
            self._media.set_result(media)
        if changed and self.on_hold_change:
            self.on_hold_change(held)

    def _release_late(self, slot: int) -> None:
        with contextlib.suppress(KeyError):  # the same slot again, and closed already
            self._pump.release(slot)

    def _has_rung(self) -> None:
        if not self.ringing.done():
            self.ringing.set_result(None)

    def _has_been_answered(self) -> None:
        if not self.answered.done():
            self.answered.set_result(None)

    def _has_ended(self, code: int, reason: str, why: reason_header.ReasonHeader = reason_header.NO_REASON) -> None:
        if self.ended.done():
            return
        if self._hung_up:
            self.ended.set_result(LegEnd(code, reason, by_peer=False, cause=self._our_cause))
        else:
            self.ended.set_result(
                LegEnd(code, reason, by_peer=True, cause=why.cause, completed_elsewhere=why.completed_elsewhere)
            )

    def _has_digit(self, digit: str, way: DtmfMethod) -> None:
        if self.on_digit:
            self.on_digit(digit, way)
