"""pjsua2's call objects, and the dialogs that legs have of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol

import pjsua2 as pj
import structlog

from media.dtmf.keys import DtmfMethod
from sipcore import _native
from sipcore.dialogs.invite import InvitePath, OutboundInvite
from sipcore.dialogs.leg import Leg, Media
from sipcore.messages import headers
from sipcore.messages.headers import HeaderLines
from sipcore.messages.refer import sipfrag, subscription_state
from sipcore.pjsip_thread import PjsipThread
from sipcore.security.srtp import MediaEncryption

log = structlog.get_logger(__name__)

_STATUS_WITH_STREAM = (pj.PJSUA_CALL_MEDIA_ACTIVE, pj.PJSUA_CALL_MEDIA_LOCAL_HOLD, pj.PJSUA_CALL_MEDIA_REMOTE_HOLD)

_CALL_LOCK_TIMEOUT = 70009
"""PJ_ETIMEDOUT: another thread has kept the call's lock."""

_SERVICE_UNAVAILABLE = 503
"""Another address of the same host may have time (RFC 3263 4.3)."""

_ANSWERED_STATES = (pj.PJSIP_INV_STATE_CONNECTING, pj.PJSIP_INV_STATE_CONFIRMED)


class PjCallListener(Protocol):
    """What a `PjCall` reports to. PJSIP's threads call it."""

    def on_ringing(self, call: PjCall) -> None:
        """The peer rings."""

    def on_answered(self, call: PjCall) -> None:
        """The peer has answered."""

    def on_redirected(self, call: PjCall, code: int, answer: pj.SipRxData) -> None:
        """A 3xx response to our INVITE."""

    def on_no_response(self, call: PjCall, code: int, reason: str, reasons: str) -> None:
        """No response (`code` is 0) or 503 to our INVITE, and the host has another address."""

    def on_ended(self, call: PjCall, code: int, reason: str, reasons: str) -> None:
        """The dialog is over. `reasons`: the peer's Reason headers (RFC 3326)."""

    def on_media(self, call: PjCall, media: Media, held: bool) -> None:
        """The call has an audio stream in a slot of the pump."""

    def on_media_encryption(self, secrecy: MediaEncryption) -> None:
        """The keying of the call's audio is agreed."""

    def on_no_pump_slot(self, call: PjCall) -> None:
        """The pump is full."""

    def on_no_sdp_answer(self, call: PjCall) -> None:
        """The ACK brought no usable SDP answer to our offer (RFC 3261 13.2.2.4)."""

    def on_digit(self, call: PjCall, digit: str, way: DtmfMethod) -> None:
        """A DTMF digit by RFC 4733 or SIP INFO; INFO may carry anything in its place."""

    def status_for_refer(self, call: PjCall, request: str) -> int:
        """The status for a REFER; 100: it follows later."""

    def status_for_replaces(self, call: PjCall, source: str) -> int:
        """The status for an INVITE with Replaces (RFC 3891) from an address."""

    def on_replaced(self, before: PjCall, after: PjCall) -> None:
        """Another call replaces this one."""


class PjCall(pj.Call):  # type: ignore[misc]
    """One pjsua2 call. Its callbacks run on PJSIP's threads: they copy facts and post them, nothing else."""

    _keys = itertools.count()

    def __init__(self, account: pj.Account, listener: PjCallListener, call_id: int = pj.PJSUA_INVALID_ID) -> None:
        super().__init__(account, call_id)
        self._listener = listener
        self.key = next(self._keys)
        self.account = account
        self.leg: Leg | None = None
        self.invite: OutboundInvite | None = None
        """What was sent, when we called."""
        self.path: InvitePath | None = None
        """How it was sent."""
        self.peer = ""
        """The address that the other side was heard from last."""
        self._ringing = self._answered = False
        self._replacement: PjCall | None = None
        self.accepted_refers = 0
        """How many REFERs were accepted."""
        self.reporting_declined_refer = False
        """A REFER that was declined is being noted."""

    def onCallState(self, prm: pj.OnCallStateParam) -> None:
        """The progress of a call that we make, and the end of any call. What is in between is told by media."""
        info = self.getInfo()
        self.peer = _source_of(prm.e) or self.peer
        if info.state == pj.PJSIP_INV_STATE_DISCONNECTED:
            _native.detach_call(info.id, int(self.this))
            reasons = _native.take_peer_reason(info.id)
            unheard = info.role == pj.PJSIP_ROLE_UAC and not self._answered and _without_response(prm.e)
            code = 0 if unheard else info.lastStatusCode
            if self._follows_redirects and 300 <= code < 400:
                self._listener.on_redirected(self, code, prm.e.body.tsxState.src.rdata)
            elif self._may_fail_over(code):
                self._listener.on_no_response(self, code, info.lastReason, reasons)
            else:
                self._listener.on_ended(self, code, info.lastReason, reasons)
        elif info.role == pj.PJSIP_ROLE_UAC and info.state == pj.PJSIP_INV_STATE_EARLY:
            self._ringing = True
            self._listener.on_ringing(self)
        elif info.role == pj.PJSIP_ROLE_UAC and info.state in _ANSWERED_STATES:
            self._answered = True
            self._listener.on_answered(self)
        elif info.state == pj.PJSIP_INV_STATE_CONFIRMED and not _has_audio_stream(info) and self.isActive():
            self._listener.on_no_sdp_answer(self)

    @property
    def _follows_redirects(self) -> bool:
        return not self._answered and self.invite is not None and self.invite.follow is not None

    def _may_fail_over(self, code: int) -> bool:
        if self._ringing or self._answered or self.path is None or self.path.is_last:
            return False
        return code == 0 or (code == _SERVICE_UNAVAILABLE and not self.path.resolved_by_pjsip)

    def onCallMediaState(self, prm: pj.OnCallMediaStateParam) -> None:
        """Sound began, or changed by a re-INVITE."""
        info = self.getInfo()
        slot = _native.slot_of(info.id)
        if info.state == pj.PJSIP_INV_STATE_CONFIRMED and _audio_failed(info) and self.isActive():
            self._listener.on_no_sdp_answer(self)
            return
        for media in info.media:
            if media.type == pj.PJMEDIA_TYPE_AUDIO and media.status in _STATUS_WITH_STREAM:
                if slot is None:
                    if (
                        media.dir != pj.PJMEDIA_DIR_NONE
                    ):  # else held from its first offer on: sound comes with a later one
                        self._listener.on_no_pump_slot(self)
                    return
                held = media.status != pj.PJSUA_CALL_MEDIA_ACTIVE
                codec = self.getStreamInfo(media.index).codecName
                secrecy = MediaEncryption.of_call(info.id)
                self._listener.on_media(self, Media(slot, _native.rate(slot), codec, secrecy.keying), held)
                self._listener.on_media_encryption(secrecy)
                return

    def onDtmfDigit(self, prm: pj.OnDtmfDigitParam) -> None:
        """A digit, by RFC 4733 (its repeated packets are one) or SIP INFO."""
        self._listener.on_digit(self, prm.digit, "info" if prm.method == pj.PJSUA_DTMF_METHOD_SIP_INFO else "rfc4733")

    def onCallTransferRequest(self, prm: pj.OnCallTransferRequestParam) -> None:
        """REFER (RFC 3515), as `sipcore.messages.refer.read` takes it."""
        prm.statusCode = self._listener.status_for_refer(self, prm.dstUri)

    def onCallReplaceRequest(self, prm: pj.OnCallReplaceRequestParam) -> None:
        """Somebody wants to take the other side's place (RFC 3891)."""
        source = headers.without_port(prm.rdata.srcAddress)
        prm.statusCode = self._listener.status_for_replaces(self, source)
        if prm.statusCode == pj.PJSIP_SC_OK:
            self._replacement = prm.newCall = PjCall(self.account, self._listener)
            self._replacement.peer = source

    def onCallReplaced(self, prm: pj.OnCallReplacedParam) -> None:
        """Somebody takes the other side's place; this call ends next."""
        if self._replacement is not None:
            self._listener.on_replaced(self, self._replacement)
            self._replacement = None


class PjDialogControl:
    """`sipcore.dialogs.leg.DialogControl` on a pjsua2 call. A command to a call that has just ended does nothing."""

    def __init__(self, owner: PjsipThread, call: PjCall) -> None:
        self._owner = owner
        self._call: PjCall | None = call

    async def respond(self, code: int, headers: HeaderLines) -> None:
        """Answer the INVITE."""
        await self._owner.run(self._respond_here, code, headers)

    async def bye(self, reason: str) -> None:
        """BYE, CANCEL or refuse."""
        await self._owner.run(self._bye_here, 0, reason)

    async def latest_status(self) -> int:
        """The latest response to our INVITE."""
        return await self._owner.run(self._latest_status_here)

    async def notify(self, event: str, code: int) -> None:
        """Tell the peer what has become of its REFER."""
        await self._owner.run(self._notify_here, event, code)

    def detach(self) -> None:
        """The call has ended: later verbs do nothing. On the owner's thread."""
        self._call = None

    def _respond_here(self, code: int, headers: HeaderLines) -> None:
        self._do_here(f"answer {code}", lambda call: call.answer(call_params(code, headers)))

    def _bye_here(self, code: int = 0, reason: str = "") -> None:
        self._do_here("hangup", lambda call: _hang_up(call, code, reason))

    def _notify_here(self, event: str, code: int) -> None:
        request = pj.CallSendRequestParam()
        request.method = "NOTIFY"
        request.txOption.contentType = "message/sipfrag"
        request.txOption.msgBody = sipfrag(code)
        for name, value in (("Event", event), ("Subscription-State", subscription_state(code))):
            request.txOption.headers.append(_header(name, value))
        self._do_here("notify", lambda call: call.sendRequest(request))

    def _latest_status_here(self) -> int:
        return _native.invite_status(self._call.getId()) if self._call is not None and self._call.isActive() else 0

    def _do_here(self, verb: str, act: Callable[[PjCall], None], tries: int = 10) -> None:
        """PJSIP refuses a verb in a call that the peer ends at this moment; its end is reported by its own way. A call
        that is busy for 2 s is asked again, after whatever else waits."""
        if self._call is None or not self._call.isActive():
            return
        try:
            act(self._call)
        except pj.Error as error:
            if error.status == _CALL_LOCK_TIMEOUT and tries > 1:
                self._owner.post(self._do_here, verb, act, tries - 1)
            else:
                log.info("sip.verb_refused", verb=verb, reason=error.reason)


def _hang_up(call: PjCall, code: int, reason: str) -> None:
    status = _native.hangup(call.getId(), code, reason)
    if status:
        raise pj.Error(status, "hangup", pj.Endpoint.instance().utilStrError(status), "", 0)


def _has_audio_stream(info: pj.CallInfo) -> bool:
    """It has a stream, or will have one when it is not held any more."""
    return any(media.type == pj.PJMEDIA_TYPE_AUDIO and media.status in _STATUS_WITH_STREAM for media in info.media)


def _audio_failed(info: pj.CallInfo) -> bool:
    """The two sides have agreed on sound that cannot be, as when the answer to an encrypted offer is not encrypted."""
    states = [media.status for media in info.media if media.type == pj.PJMEDIA_TYPE_AUDIO]
    return pj.PJSUA_CALL_MEDIA_ERROR in states and not _has_audio_stream(info)


def _source_of(event: pj.SipEvent) -> str:
    """The address that a message came from; "" when the event is none."""
    if event.type != pj.PJSIP_EVENT_TSX_STATE or event.body.tsxState.type != pj.PJSIP_EVENT_RX_MSG:
        return ""
    return headers.without_port(event.body.tsxState.src.rdata.srcAddress)


def _without_response(event: pj.SipEvent) -> bool:
    """A transaction timed out or lost its transport; PJSIP makes a 408 or 503 of that, as if the peer had said so."""
    silent = (pj.PJSIP_EVENT_TIMER, pj.PJSIP_EVENT_TRANSPORT_ERROR)
    return event.type == pj.PJSIP_EVENT_TSX_STATE and event.body.tsxState.type in silent


def call_params(code: int, headers: HeaderLines) -> pj.CallOpParam:
    """What pjsua2 is told of a message that it sends."""
    operation = pj.CallOpParam(True)
    operation.opt.audioCount = 1
    operation.opt.videoCount = 0
    operation.opt.textCount = 0  # else each call offers real-time text, with a thread and 300 ms at its end
    operation.statusCode = code
    for name, value in headers:
        operation.txOption.headers.append(_header(name, value))
    return operation


def _header(name: str, value: str) -> pj.SipHeader:
    header = pj.SipHeader()
    header.hName, header.hValue = name, value
    return header
