"""A call leg, the interface of `sipcore` to `calls`: the facts of its INVITE, commands and futures. Event loop only."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from media.dtmf.keys import DtmfMethod
from sipcore.audio.call_quality import CallQuality, call_quality
from sipcore.audio.dtmf_sending import DtmfSender
from sipcore.audio.pump import Pump, SlotStats
from sipcore.dialogs import refer_client
from sipcore.dialogs.refer_client import ReferDialog, ReferDomain, ReferParams, ReferResult
from sipcore.messages import reason_header
from sipcore.messages.captured_headers import CapturedHeaders
from sipcore.messages.headers import HeaderLines, NameAddr
from sipcore.messages.reason_header import Q850Cause
from sipcore.messages.refer import DialogId, ReferRequest
from sipcore.security.srtp import SrtpKeying

AUDIO_CHECK_S: Final = 1.0
"""How often an inbound leg without an ACK looks for audio."""


@dataclass(frozen=True)
class Media:
    """The audio stream of a leg: its slot in the pump, the sample rate in Hz, the codec's name, and how the SRTP keys
    are agreed on (None: RTP is not encrypted)."""

    slot: int
    rate: int
    codec: str
    keying: SrtpKeying | None = None


@dataclass(frozen=True)
class LegEnd:
    """The end of a leg: the final SIP status, its reason phrase, and whether the peer ended it. The status is 0 when an
    outbound INVITE got no final response or could not be sent. `cause`: the Q.850 cause that the ending side gave.
    `completed_elsewhere`: another phone answered the caller (RFC 3326)."""

    code: int
    reason: str
    by_peer: bool
    cause: Q850Cause | None = None
    completed_elsewhere: bool = False
    has_sip: bool = True
    """False: the leg had no SIP dialog."""


@dataclass(frozen=True)
class InviteFacts:
    """The facts of a leg's INVITE. `source` is the address that an inbound INVITE came from, "" for an outbound one;
    users and names of inbound legs come from the network."""

    sip_call_id: str
    direction: Literal["inbound", "outbound"]
    source: str
    request_user: str
    to_addr: NameAddr
    from_addr: NameAddr
    authorization: str = field(default="", repr=False)
    """The Authorization header of an inbound INVITE (RFC 3261, 20.7); "" without one."""
    request_host_port: str = ""
    """The `host[:port]` of an inbound INVITE's request URI."""
    from_tag: str = ""
    """The From tag of an inbound INVITE."""
    headers: CapturedHeaders = field(default_factory=dict)
    """Further headers of an inbound INVITE (`sipcore.messages.captured_headers`); empty for an outbound one."""


@dataclass(frozen=True)
class ReferTarget:
    """The target of a REFER of ours: a number or extension, dialled in the leg's `refer_domain`. `replaces`: a leg to
    the target whose call the peer takes over (RFC 3891). `referred_by`: the user of our URI in Referred-By (RFC 3892),
    which needs no escapes; "": none is sent. `headers`: further headers of the REFER, such as User-to-User."""

    user: str
    replaces: Leg | None = None
    referred_by: str = ""
    headers: HeaderLines = ()


class DialogControl(ReferDialog, Protocol):
    """The commands of a SIP dialog; each runs on the PJSIP thread by itself."""

    def respond(self, code: int, headers: HeaderLines) -> Coroutine[Any, Any, None]:
        """Answer the INVITE with a provisional or final status."""

    def bye(self, reason: str) -> Coroutine[Any, Any, None]:
        """End the dialog with BYE, CANCEL or a refusal, as its state demands, and with this Reason header (RFC
        3326)."""

    def latest_status(self) -> Coroutine[Any, Any, int]:
        """The status of the latest response to the outbound INVITE; 0 before any, and after the call."""

    def limit_codecs(self, codecs: Sequence[str]) -> Coroutine[Any, Any, bool]:
        """Set the codecs of an inbound call that has not been answered; see `Leg.limit_codecs`."""

    def probe(self) -> Coroutine[Any, Any, asyncio.Future[int]]:
        """Send OPTIONS in the dialog of an answered call (RFC 3261, 12.2). Returns the future status of its final
        response, 0 without one. Raises `ConnectionError` without an answered call."""

    def dialog_id(self) -> Coroutine[Any, Any, DialogId]:
        """The Call-ID and tags. Raises `ConnectionError` without an answered call."""


class LegState:
    """The state that a `Leg` and its `LegDriver` share."""

    def __init__(self, dialog: DialogControl, pump: Pump, loop: asyncio.AbstractEventLoop) -> None:
        self.dialog = dialog
        self.pump = pump
        self.media: asyncio.Future[Media] = loop.create_future()
        self.acknowledged: asyncio.Future[None] = loop.create_future()
        """The ACK of the INVITE has been sent or received (RFC 3261, 13)."""
        self.codec = ""
        """The codec that was agreed on last."""
        self.refer: ReferRequest | None = None
        """The REFER that is being served."""
        self.sending_refer = False
        """A REFER of ours is being followed."""
        self.hung_up = False
        """Our side has ended the leg."""
        self.our_cause: Q850Cause | None = None
        """The Q.850 cause that our side gave."""
        self.released = False
        """The pump's slot has been released."""


class Leg:
    """One SIP dialog with a peer."""

    def __init__(self, facts: InviteFacts, state: LegState, loop: asyncio.AbstractEventLoop) -> None:
        self.facts = facts
        self.ended: asyncio.Future[LegEnd] = loop.create_future()
        self.ringing: asyncio.Future[None] = loop.create_future()
        """Of an outbound leg: the peer rings, or has sent another provisional response (101..199)."""
        self.answered: asyncio.Future[None] = loop.create_future()
        """Of an outbound leg: the peer has answered with 2xx."""
        self.on_digit: Callable[[str, DtmfMethod], None] | None = None
        """Called with each DTMF digit of the peer and the method that carried it."""
        self.on_hold = False
        """The peer has put us on hold."""
        self.on_hold_change: Callable[[bool], None] | None = None
        """Called when the peer puts us on hold, or resumes."""
        self.on_dtmf_sending: Callable[[bool], None] | None = None
        """Called when `send_digits` begins to send DTMF, and when it has ended."""
        self.may_be_replaced_by: Callable[[str], bool] | None = None
        """Returns whether an INVITE with Replaces (RFC 3891) from that address may replace the peer's dialog; None:
        only one from the peer's own address. Called on PJSIP's threads."""
        self.on_refer: Callable[[ReferRequest, Callable[[], Awaitable[None]]], Awaitable[Leg | int]] | None = None
        """Calls the target of the peer's REFER (RFC 3515). Returns the answered leg, whose call this leg takes over, or
        the SIP status of the failure. The second argument accepts the REFER (202); unless it is called, the status is
        the REFER's final response. None: every REFER is declined."""
        self.refer_domain: ReferDomain | None = None
        """The domain of the targets of `refer`, which is the trunk's; None: that of the peer's own URI."""
        self.trunk_key = ""
        """The key of the trunk that the call belongs to; "": its dialog is not recorded for the next process."""
        self._state = state
        self._dtmf = DtmfSender(state.pump, self.ended, self._report_dtmf_sending)

    @property
    def sip_call_id(self) -> str:
        """The SIP Call-ID."""
        return self.facts.sip_call_id

    @property
    def has_media(self) -> bool:
        """Audio flows or has flowed; on an outbound leg perhaps before the answer (early media)."""
        return self._state.media.done()

    @property
    def media(self) -> Media | None:
        """The audio stream; None before there is one."""
        return self._state.media.result() if self._state.media.done() else None

    async def limit_codecs(self, codecs: Sequence[str]) -> bool:
        """Let an inbound call that has not been answered have these codecs alone, preferred first, in every SDP of ours
        until its end. Returns False if its offer has none of them: it cannot be answered."""
        return await self._state.dialog.limit_codecs(codecs)

    async def send_ringing(self) -> None:
        """Send 180."""
        await self._state.dialog.respond(180, ())

    async def answer(self) -> Media:
        """Send 200 and wait until audio flows. Raises `ConnectionError` when the leg ends first."""
        await self._state.dialog.respond(200, ())
        return await self.wait_connected()

    async def wait_connected(self) -> Media:
        """Wait until the call is answered and audio flows. Raises `ConnectionError` when the leg ends first."""
        if self.facts.direction == "outbound":
            await asyncio.wait((self.answered, self.ended), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((self._state.media, self.ended), return_when=asyncio.FIRST_COMPLETED)
        if self.media is None or (self.facts.direction == "outbound" and not self.answered.done()):
            end = self.ended.result()
            raise ConnectionError(f"the leg ended before it had audio: {end.code} {end.reason}")
        return self.media

    async def latest_status(self) -> int:
        """The status of the latest response to the outbound INVITE, 100 included; 0 before any response."""
        return await self._state.dialog.latest_status()

    async def reject(self, code: int, retry_after_s: int | None = None, headers: HeaderLines = ()) -> None:
        """Refuse an inbound leg with a final status."""
        state = self._state
        state.hung_up, state.our_cause = True, reason_header.cause_of_status(code)
        reason = () if state.our_cause is None else (("Reason", reason_header.format_reason(state.our_cause)),)
        later = () if retry_after_s is None else (("Retry-After", str(retry_after_s)),)
        await state.dialog.respond(code, (*headers, *reason, *later))

    async def hangup(self, cause: int = reason_header.NORMAL_CLEARING) -> None:
        """Send BYE, CANCEL or a refusal, as the dialog's state demands, with a Q.850 cause. Harmless on a leg that has
        ended."""
        if self.ended.done():
            return
        self._state.hung_up, self._state.our_cause = True, reason_header.q850_cause(cause)
        await self._state.dialog.bye(reason_header.format_reason(self._state.our_cause))

    @property
    def is_referring(self) -> bool:
        """A REFER is pending. A peer that has taken the call sends no RTP any more."""
        return self._state.sending_refer

    @property
    def is_established(self) -> bool:
        """The dialog is established at both ends: a 2xx response was acknowledged, or the peer has sent audio or BYE
        after ours."""
        if self.facts.direction == "outbound":
            return self.answered.done()
        if self._state.acknowledged.done() or self._was_ended_by_bye:
            return True
        return (
            self.media is not None
            and not self._state.released
            and self._state.pump.rtp_totals(self._slot()).received > 0
        )

    @property
    def _was_ended_by_bye(self) -> bool:
        return self.ended.done() and self.ended.result().by_peer and self.ended.result().code < 300

    async def wait_established(self) -> None:
        """Wait, after the answer, until the dialog is established or the leg has ended."""
        waits = (self._state.acknowledged, self.ended)
        while not (self.is_established or self.ended.done()):
            await asyncio.wait(waits, timeout=AUDIO_CHECK_S, return_when=asyncio.FIRST_COMPLETED)

    async def refer(self, target: ReferTarget, timeout_s: float, ring_timeout_s: float = 0) -> ReferResult:
        """Refer the peer to another target (REFER, RFC 3515), and wait for the target's final status, at most
        `timeout_s` seconds, and `ring_timeout_s` more when the peer reports that the target rings. The leg goes on
        unless the peer ends it: hang up after `completed`. Raises `ConnectionError` when this leg or the one to replace
        has no answered call (any more), or ends before the peer accepts the REFER; `RuntimeError` while another REFER
        of this leg is pending; `ValueError` for an invalid target or header."""
        state = self._state
        if state.sending_refer:
            raise RuntimeError("another REFER of this leg is pending")
        if self.ended.done() or state.hung_up or not self._is_answered:
            raise ConnectionError("the leg has no answered call")
        state.sending_refer = True
        try:
            replaces = None if target.replaces is None else await target.replaces._state.dialog.dialog_id()
            params = ReferParams(target.user, self.refer_domain, replaces, target.referred_by, target.headers)
            inbound = self.facts.direction == "inbound"
            ready = state.acknowledged
            return await refer_client.refer(
                state.dialog, params, ready, self.ended,
                inbound=inbound, timeout_s=timeout_s, ring_timeout_s=ring_timeout_s,
            )  # fmt: skip
        finally:
            state.sending_refer = False

    @property
    def _is_answered(self) -> bool:
        return self.media is not None and (self.facts.direction == "inbound" or self.answered.done())

    async def send_digits(self, digits: str) -> None:
        """As `CallLeg.send_digits`, by `DtmfSender.send`. They are RFC 4733 events, or in-band tones when the peer has
        negotiated none. SIP INFO is not used, because a peer's support for it is unknown (RFC 6086, 1), while in-band
        tones reach every far end."""
        await self._dtmf.send(digits, lambda: self._state.media.result().slot)

    def _report_dtmf_sending(self, on: bool) -> None:
        if self.on_dtmf_sending:
            self.on_dtmf_sending(on)

    def rtp_silence_s(self) -> float:
        """Seconds since the last RTP packet; 0 before there is audio, on hold, and while a REFER of either side is
        pending."""
        if not self.has_media or self.on_hold or self._state.refer or self._state.sending_refer:
            return 0.0
        return (time.monotonic_ns() - self.stats().last_packet_ns) / 1e9

    def rtp_refused_s(self) -> float:
        """Seconds since an ICMP message said that nobody listens on the port to which RTP or RTCP goes; infinite if
        none has since the last RTP packet, before there is audio, and while a REFER of either side is pending."""
        if not self.has_media or self._state.refer or self._state.sending_refer:
            return math.inf
        stats = self.stats()
        if stats.unreachable_ns <= stats.last_packet_ns:
            return math.inf
        return (time.monotonic_ns() - stats.unreachable_ns) / 1e9

    async def probe(self) -> asyncio.Future[int]:
        """Ask the peer, by OPTIONS in the dialog (RFC 3261, 12.2), whether it still has the call. Returns the future
        status of the response: 481 if it has not; 0 without a response, after 32 s at most, or if another dialog has
        replaced this one. Raises `ConnectionError`
        without an answered call, and while another thread works with it."""
        dialog = self._state.dialog
        return asyncio.ensure_future(self._status_of_present(dialog, await dialog.probe()))

    async def _status_of_present(self, dialog: DialogControl, status: asyncio.Future[int]) -> int:
        """The status, if the leg still is that dialog, and no other one has replaced it (RFC 3891); else 0."""
        answer = await status
        return answer if self._state.dialog is dialog else 0

    def stats(self) -> SlotStats:
        """Audio counters of the leg. Raises `KeyError` without audio, and after `release`."""
        return self._state.pump.slot_stats(self._slot())

    def quality(self) -> CallQuality:
        """The audio quality of both directions, over all of the leg so far. Raises `KeyError` without audio, and after
        `release`."""
        return call_quality(self._state.pump.rtp_totals(self._slot()), self._state.codec)

    def _slot(self) -> int:
        if self.media is None:
            raise KeyError("no audio yet")
        return self.media.slot

    def release(self) -> None:
        """Release the pump's slot, when neither direction of it is in use any more; later audio gets none.
        Idempotent."""
        if not self._state.released and self.media is not None:
            self._state.pump.release(self.media.slot)
        self._state.released = True
