"""pjsua2's call objects, and the commands of legs to them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

import pjsua2 as pj
import structlog

from media.dtmf.keys import DtmfMethod
from sipcore import _native
from sipcore.dialogs.dialog_probes import DialogProbes
from sipcore.dialogs.dialog_record import DialogRecord
from sipcore.dialogs.invite import InvitePath, OutboundInvite
from sipcore.dialogs.leg import Media
from sipcore.dialogs.leg_driver import LegDriver
from sipcore.dialogs.refer_client import ReferClient, ReferParams, SentRefer
from sipcore.messages import headers
from sipcore.messages.headers import HeaderLines
from sipcore.messages.refer import DialogId, format_refer_to, format_referred_by, sipfrag, subscription_state
from sipcore.pjsip_thread import PjsipThread
from sipcore.security.srtp import MediaEncryption

log = structlog.get_logger(__name__)

_STATUS_WITH_STREAM = (pj.PJSUA_CALL_MEDIA_ACTIVE, pj.PJSUA_CALL_MEDIA_LOCAL_HOLD, pj.PJSUA_CALL_MEDIA_REMOTE_HOLD)

_CALL_LOCK_TIMEOUT = 70009
"""PJ_ETIMEDOUT: another thread has held the call's lock."""

_SERVICE_UNAVAILABLE = 503
"""Another address of the same host may be available (RFC 3263 4.3)."""

_NOT_ACCEPTABLE_HERE = 488
"""The peer accepts no offer like this one (RFC 3261 21.4.26)."""

_ANSWERED_STATES = (pj.PJSIP_INV_STATE_CONNECTING, pj.PJSIP_INV_STATE_CONFIRMED)


class PjCallListener(Protocol):
    """Receives the events of a `PjCall`, on PJSIP's threads."""

    def on_ringing(self, call: PjCall) -> None:
        """A provisional response (101..199) to an outbound INVITE."""

    def on_answered(self, call: PjCall) -> None:
        """A 2xx response to an outbound INVITE."""

    def on_acknowledged(self, call: PjCall) -> None:
        """The ACK of the INVITE was sent or received."""

    def on_redirected(self, call: PjCall, code: int, response: pj.SipRxData) -> None:
        """A 3xx response to an outbound INVITE."""

    def on_no_response(self, call: PjCall, code: int, reason: str, reasons: str) -> None:
        """No response (`code` is 0) or 503 to an outbound INVITE, and the host has another address."""

    def on_optional_srtp_refused(self, call: PjCall, code: int, reason: str, reasons: str) -> None:
        """488 to an outbound INVITE that offers SRTP as optional."""

    def on_ended(self, call: PjCall, code: int, reason: str, reasons: str) -> None:
        """The dialog is over. `reasons`: the peer's Reason headers (RFC 3326)."""

    def on_dialog(self, call: PjCall, record: DialogRecord | None) -> None:
        """The dialog was established or has changed; None: it is over."""

    def on_media(self, call: PjCall, media: Media, held: bool) -> None:
        """The call has an audio stream in a slot of the pump."""

    def on_media_encryption(self, encryption: MediaEncryption) -> None:
        """The SRTP keying of the call's audio is agreed."""

    def on_no_pump_slot(self, call: PjCall) -> None:
        """The pump is full."""

    def on_no_sdp_answer(self, call: PjCall) -> None:
        """The ACK brought no usable SDP answer to our offer (RFC 3261 13.2.2.4)."""

    def on_digit(self, call: PjCall, digit: str, method: DtmfMethod) -> None:
        """A DTMF digit by RFC 4733 or SIP INFO; INFO may contain any text."""

    def status_for_refer(self, call: PjCall, request: str) -> int:
        """The status for a REFER; 100: it follows later."""

    def status_for_replaces(self, call: PjCall, source: str) -> int:
        """The status for an INVITE with Replaces (RFC 3891) from an address."""

    def on_replaced(self, before: PjCall, after: PjCall) -> None:
        """Another call replaces this one."""


class PjCall(pj.Call):  # type: ignore[misc]
    """One pjsua2 call. Its callbacks run on PJSIP's threads, and only copy facts and post them."""

    _keys = itertools.count()

    def __init__(self, account: pj.Account, listener: PjCallListener, call_id: int = pj.PJSUA_INVALID_ID) -> None:
        super().__init__(account, call_id)
        self._listener = listener
        self.key = next(self._keys)
        self.account = account
        self.driver: LegDriver | None = None
        """The driver of its leg; None when it has none (any more)."""
        self.invite: OutboundInvite | None = None
        """The INVITE that was sent; None for an inbound call."""
        self.path: InvitePath | None = None
        """The path that it took."""
        self.peer = ""
        """The address that the latest message of the peer came from."""
        self._ringing = self._answered = False
        self._record: DialogRecord | None = None
        """The record of the dialog that was reported last."""
        self._replacement: PjCall | None = None
        self.accepted_refers = 0
        """Number of REFERs that were accepted."""
        self.reporting_declined_refer = False
        """A declined REFER is being reported to `Leg.on_refer`."""

    def onCallState(self, prm: pj.OnCallStateParam) -> None:
        """The progress of an outbound call, and the ACK and the end of any call; `onCallMediaState` reports audio."""
        info = self.getInfo()
        self.peer = _source_of(prm.e) or self.peer
        self._report_dialog(info)
        if info.state == pj.PJSIP_INV_STATE_CONFIRMED:
            self._listener.on_acknowledged(self)
        if info.state == pj.PJSIP_INV_STATE_DISCONNECTED:
            _native.detach_call(info.id, int(self.this))
            reasons = _native.take_peer_reason(info.id)
            no_response = info.role == pj.PJSIP_ROLE_UAC and not self._answered and _without_response(prm.e)
            code = 0 if no_response else info.lastStatusCode
            if self._follows_redirects and 300 <= code < 400:
                self._listener.on_redirected(self, code, prm.e.body.tsxState.src.rdata)
            elif self._may_fail_over(code):
                self._listener.on_no_response(self, code, info.lastReason, reasons)
            elif self._may_require_srtp(code):
                self._listener.on_optional_srtp_refused(self, code, info.lastReason, reasons)
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

    def _report_dialog(self, info: pj.CallInfo) -> None:
        """Report the dialog's record if it has changed in more than its CSeq number."""
        over = info.state == pj.PJSIP_INV_STATE_DISCONNECTED
        record = None if over else DialogRecord.of_call(info.id)
        changed = record is not None and not record.same_dialog(self._record)
        if changed or (over and self._record is not None):
            self._record = record
            self._listener.on_dialog(self, record)

    @property
    def _follows_redirects(self) -> bool:
        return not self._answered and self.invite is not None and self.invite.follow is not None

    def _may_fail_over(self, code: int) -> bool:
        if self._ringing or self._answered or self.path is None or self.path.is_last:
            return False
        return code == 0 or (code == _SERVICE_UNAVAILABLE and not self.path.resolved_by_pjsip)

    def _may_require_srtp(self, code: int) -> bool:
        optional = self.invite is not None and self.invite.srtp == "optional"
        return optional and not self._answered and code == _NOT_ACCEPTABLE_HERE

    def onCallMediaState(self, prm: pj.OnCallMediaStateParam) -> None:
        """The audio stream began, or changed by a re-INVITE."""
        info = self.getInfo()
        slot = _native.slot_of(info.id)
        self._report_dialog(info)
        if info.state == pj.PJSIP_INV_STATE_CONFIRMED and _audio_failed(info) and self.isActive():
            self._listener.on_no_sdp_answer(self)
            return
        for media in info.media:
            if media.type == pj.PJMEDIA_TYPE_AUDIO and media.status in _STATUS_WITH_STREAM:
                if slot is None:
                    if media.dir != pj.PJMEDIA_DIR_NONE:  # else on hold since its first offer: a later offer adds audio
                        self._listener.on_no_pump_slot(self)
                    return
                held = media.status != pj.PJSUA_CALL_MEDIA_ACTIVE
                codec = self.getStreamInfo(media.index).codecName
                encryption = MediaEncryption.of_call(info.id)
                self._listener.on_media(self, Media(slot, _native.rate(slot), codec, encryption.keying), held)
                self._listener.on_media_encryption(encryption)
                return

    def onDtmfDigit(self, prm: pj.OnDtmfDigitParam) -> None:
        """A digit, by RFC 4733 (its repeated packets are one) or SIP INFO."""
        self._listener.on_digit(self, prm.digit, "info" if prm.method == pj.PJSUA_DTMF_METHOD_SIP_INFO else "rfc4733")

    def onCallTransferRequest(self, prm: pj.OnCallTransferRequestParam) -> None:
        """REFER (RFC 3515), in the format of `sipcore.messages.refer.parse_refer`."""
        prm.statusCode = self._listener.status_for_refer(self, prm.dstUri)

    def onCallReplaceRequest(self, prm: pj.OnCallReplaceRequestParam) -> None:
        """An INVITE with Replaces (RFC 3891) names this dialog."""
        source = headers.without_port(prm.rdata.srcAddress)
        prm.statusCode = self._listener.status_for_replaces(self, source)
        if prm.statusCode == pj.PJSIP_SC_OK:
            self._replacement = prm.newCall = PjCall(self.account, self._listener)
            self._replacement.peer = source

    def onCallReplaced(self, prm: pj.OnCallReplacedParam) -> None:
        """Another dialog replaces this one, which ends next."""
        if self._replacement is not None:
            self._listener.on_replaced(self, self._replacement)
            self._replacement = None


class PjDialogControl:
    """`sipcore.dialogs.leg.DialogControl` on a pjsua2 call. A command to a call that has just ended does nothing."""

    def __init__(self, pjsip_thread: PjsipThread, call: PjCall, refers: ReferClient, probes: DialogProbes) -> None:
        self._pjsip_thread = pjsip_thread
        self._refers = refers
        self._probes = probes
        self._call: PjCall | None = call

    async def respond(self, code: int, headers: HeaderLines) -> None:
        """Answer the INVITE."""
        await self._pjsip_thread.run(self._respond_on_pjsip_thread, code, headers)

    async def bye(self, reason: str) -> None:
        """Send BYE, CANCEL or a refusal."""
        await self._pjsip_thread.run(self.bye_on_pjsip_thread, 0, reason)

    async def latest_status(self) -> int:
        """The status of the latest response to the outbound INVITE."""
        return await self._pjsip_thread.run(self._latest_status_on_pjsip_thread)

    async def limit_codecs(self, codecs: Sequence[str]) -> bool:
        """Set the codecs of an inbound call. Another thread may hold the call's lock for more than 2 s: then it is
        tried again."""
        while (offered := await self._pjsip_thread.run(self._limit_codecs_on_pjsip_thread, codecs)) is None:
            pass
        return offered

    async def notify(self, event: str, code: int) -> None:
        """Send NOTIFY: the status that the peer's REFER has led to."""
        await self._pjsip_thread.run(self._notify_on_pjsip_thread, event, code)

    async def dialog_id(self) -> DialogId:
        """The Call-ID and tags."""
        return await self._pjsip_thread.run(self._dialog_id_on_pjsip_thread)

    async def probe(self) -> asyncio.Future[int]:
        """Send OPTIONS. Returns the future status of its response."""
        token, status = self._probes.add()
        try:
            await self._pjsip_thread.run(self._probe_on_pjsip_thread, token)
        except BaseException:
            status.cancel()
            raise
        return status

    async def send_refer(self, params: ReferParams, sent: SentRefer) -> int:
        """Send REFER. Another thread may hold the call's lock for more than 2 s: then it is tried again."""
        token = self._refers.add(sent)
        try:
            while not await self._pjsip_thread.run(self._send_refer_on_pjsip_thread, params, token):
                pass
        except BaseException:
            self.end_refer(token)
            raise
        return token

    def end_refer(self, token: int) -> None:
        """Follow a REFER no longer."""
        self._refers.discard(token)
        self._pjsip_thread.post(self._end_refer_on_pjsip_thread, token)

    def detach(self) -> None:
        """The call has ended: later commands do nothing. On the PJSIP thread."""
        self._call = None

    def _respond_on_pjsip_thread(self, code: int, headers: HeaderLines) -> None:
        self._do_on_pjsip_thread(f"answer {code}", lambda call: call.answer(call_params(code, headers)))

    def bye_on_pjsip_thread(self, code: int = 0, reason: str = "") -> None:
        """Send BYE, CANCEL or a refusal with this status (0: PJSIP's choice)."""
        self._do_on_pjsip_thread("hangup", lambda call: _hang_up(call, code, reason))

    def _notify_on_pjsip_thread(self, event: str, code: int) -> None:
        request = pj.CallSendRequestParam()
        request.method = "NOTIFY"
        request.txOption.contentType = "message/sipfrag"
        request.txOption.msgBody = sipfrag(code)
        for name, value in (("Event", event), ("Subscription-State", subscription_state(code))):
            request.txOption.headers.append(_header(name, value))
        self._do_on_pjsip_thread("notify", lambda call: call.sendRequest(request))

    def _dialog_id_on_pjsip_thread(self) -> DialogId:
        return DialogId(*_native.dialog_id(self._active_call().getId()))

    def _limit_codecs_on_pjsip_thread(self, codecs: Sequence[str]) -> bool | None:
        """Returns None while another thread holds the call's lock."""
        if self._call is None or not self._call.isActive():
            return True
        try:
            return _native.limit_codecs(self._call.getId(), codecs)
        except BlockingIOError:
            return None

    def _probe_on_pjsip_thread(self, token: int) -> None:
        _native.dialog_probe_send(self._active_call().getId(), token)

    def _send_refer_on_pjsip_thread(self, params: ReferParams, token: int) -> bool:
        """Returns False while another thread holds the call's lock."""
        call, domain = self._active_call(), params.domain
        info = call.getInfo()
        peer = headers.uri_host_port(headers.split_name_addr(info.remoteUri)[0])
        refer_to = format_refer_to(params.user, domain.host_port if domain else peer, params.replaces)
        referred_by = format_referred_by(params.referred_by, headers.split_name_addr(info.localUri)[0])
        lines = (("Refer-To", refer_to), *referred_by, *params.headers)
        if not all(text.isprintable() for line in lines for text in line):
            raise ValueError("a header of a REFER has no line ends and control characters")
        credentials = domain.credentials if domain else None
        login = (credentials.user, credentials.password) if credentials else ("", "")
        try:
            _native.refer_client_send(call.getId(), token, lines, login)
        except BlockingIOError:
            return False
        return True

    def _end_refer_on_pjsip_thread(self, token: int) -> None:
        if self._call is not None and self._call.getId() != pj.PJSUA_INVALID_ID:
            _native.refer_client_end(self._call.getId(), token)

    def _active_call(self) -> PjCall:
        """On the PJSIP thread. Raises `ConnectionError` when the call has ended."""
        if self._call is None or not self._call.isActive():
            raise ConnectionError("the call has ended")
        return self._call

    def _latest_status_on_pjsip_thread(self) -> int:
        return _native.invite_status(self._call.getId()) if self._call is not None and self._call.isActive() else 0

    def _do_on_pjsip_thread(self, command: str, act: Callable[[PjCall], None], tries: int = 10) -> None:
        """PJSIP refuses a command to a call that the peer ends at this moment; `onCallState` reports that end. A call
        whose lock cannot be acquired within 2 s is retried after the other work of the thread."""
        if self._call is None or not self._call.isActive():
            return
        try:
            act(self._call)
        except pj.Error as error:
            if error.status == _CALL_LOCK_TIMEOUT and tries > 1:
                self._pjsip_thread.post(self._do_on_pjsip_thread, command, act, tries - 1)
            else:
                log.info("sip.verb_refused", verb=command, reason=error.reason)


def _hang_up(call: PjCall, code: int, reason: str) -> None:
    status = _native.hangup(call.getId(), code, reason)
    if status:
        raise pj.Error(status, "hangup", pj.Endpoint.instance().utilStrError(status), "", 0)


def _has_audio_stream(info: pj.CallInfo) -> bool:
    """True if the call has an audio stream, or gets one back when the hold ends."""
    return any(media.type == pj.PJMEDIA_TYPE_AUDIO and media.status in _STATUS_WITH_STREAM for media in info.media)


def _audio_failed(info: pj.CallInfo) -> bool:
    """True if the SDP answer makes the audio impossible, as one without SRTP to an offer that requires it."""
    states = [media.status for media in info.media if media.type == pj.PJMEDIA_TYPE_AUDIO]
    return pj.PJSUA_CALL_MEDIA_ERROR in states and not _has_audio_stream(info)


def _source_of(event: pj.SipEvent) -> str:
    """The source address of the message behind an event; "" when there is none."""
    if event.type != pj.PJSIP_EVENT_TSX_STATE or event.body.tsxState.type != pj.PJSIP_EVENT_RX_MSG:
        return ""
    return headers.without_port(event.body.tsxState.src.rdata.srcAddress)


def _without_response(event: pj.SipEvent) -> bool:
    """True if a transaction timed out or lost its transport, of which PJSIP makes a 408 or 503 of its own."""
    local = (pj.PJSIP_EVENT_TIMER, pj.PJSIP_EVENT_TRANSPORT_ERROR)
    return event.type == pj.PJSIP_EVENT_TSX_STATE and event.body.tsxState.type in local


def call_params(code: int, headers: HeaderLines) -> pj.CallOpParam:
    """pjsua2's parameters of a message that it sends."""
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
