"""pjsua2's call objects, and the registry that keeps them alive until they have ended."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from dataclasses import dataclass

import pjsua2 as pj
import structlog

from media.dtmf_keys import KEYS, DigitWay
from sipcore import _native, cause, headers
from sipcore.carried import carried
from sipcore.leg import HeaderLines, Leg, LegFacts, Media
from sipcore.owner import Owner
from sipcore.pump import Pump

log = structlog.get_logger(__name__)

_WITH_STREAM = (pj.PJSUA_CALL_MEDIA_ACTIVE, pj.PJSUA_CALL_MEDIA_LOCAL_HOLD, pj.PJSUA_CALL_MEDIA_REMOTE_HOLD)

LONGEST_AUTHORIZATION = 2048
"""Characters; more are no answer to a challenge of ours."""
_ACCEPTED = (pj.PJSIP_INV_STATE_CONNECTING, pj.PJSIP_INV_STATE_CONFIRMED)


class CallObject(pj.Call):  # type: ignore[misc]
    """One pjsua2 call. Its callbacks run on PJSIP's threads: they copy facts and post them, nothing else."""

    _keys = itertools.count()

    def __init__(self, account: pj.Account, registry: DialogRegistry, call_id: int = pj.PJSUA_INVALID_ID) -> None:
        super().__init__(account, call_id)
        self._registry = registry
        self.key = next(self._keys)
        self.leg: Leg | None = None
        self._accepted = False

    def onCallState(self, prm: pj.OnCallStateParam) -> None:
        """The progress of a call that we make, and the end of any call. What is in between is told by media."""
        info = self.getInfo()
        if info.state == pj.PJSIP_INV_STATE_DISCONNECTED:
            _native.forget(info.id)
            reasons = _native.reason(info.id)
            unheard = info.role == pj.PJSIP_ROLE_UAC and not self._accepted and _came_of_silence(prm.e)
            self._registry.ended(self, 0 if unheard else info.lastStatusCode, info.lastReason, reasons)
        elif info.role == pj.PJSIP_ROLE_UAC and info.state == pj.PJSIP_INV_STATE_EARLY:
            self._registry.rings(self)
        elif info.role == pj.PJSIP_ROLE_UAC and info.state in _ACCEPTED:
            self._accepted = True
            self._registry.accepted(self)
        elif info.state == pj.PJSIP_INV_STATE_CONFIRMED and not _has_sound(info):
            self._registry.has_no_answer(self)

    def onCallMediaState(self, prm: pj.OnCallMediaStateParam) -> None:
        """Sound began, or changed by a re-INVITE."""
        info = self.getInfo()
        slot = _native.slot_of(info.id)
        for media in info.media:
            if media.type == pj.PJMEDIA_TYPE_AUDIO and media.status in _WITH_STREAM:
                if slot is None:
                    if (
                        media.dir != pj.PJMEDIA_DIR_NONE
                    ):  # else held from its first offer on: sound comes with a later one
                        self._registry.has_no_slot(self)
                    return
                held = media.status != pj.PJSUA_CALL_MEDIA_ACTIVE
                codec = self.getStreamInfo(media.index).codecName
                self._registry.has_media(self, Media(slot, _native.rate(slot), codec), held)
                return

    def onDtmfDigit(self, prm: pj.OnDtmfDigitParam) -> None:
        """A digit, by RFC 4733 (its repeated packets are one) or SIP INFO."""
        self._registry.has_digit(self, prm.digit, "info" if prm.method == pj.PJSUA_DTMF_METHOD_SIP_INFO else "rfc4733")


@dataclass(frozen=True)
class Invitation:
    """A call to make: to `sip:user@host:port[;transport=tcp]`, with this Call-ID; `caller` None: From is the
    account's."""

    uri: str
    caller: headers.Party | None
    sip_call_id: str
    headers: HeaderLines = ()
    domain: str | None = None
    """What From names behind the caller; None: our address."""


class PjDialog:
    """`sipcore.leg.Dialog` on a pjsua2 call. A verb that comes when the call has just ended does nothing."""

    def __init__(self, owner: Owner, call: CallObject) -> None:
        self._owner = owner
        self._call: CallObject | None = call

    async def respond(self, code: int, headers: HeaderLines) -> None:
        """Answer the INVITE."""
        await self._owner.run(self._respond_here, code, headers)

    async def bye(self, code: int, headers: HeaderLines) -> None:
        """BYE, CANCEL or refuse."""
        await self._owner.run(self._bye_here, code, headers)

    async def progress(self) -> int:
        """The latest response to our INVITE."""
        return await self._owner.run(self._progress_here)

    def forget(self) -> None:
        """The call has ended: later verbs do nothing. On the owner's thread."""
        self._call = None

    def _respond_here(self, code: int, headers: HeaderLines) -> None:
        self._do_here(f"answer {code}", lambda call: call.answer(_operation(code, headers)))

    def _bye_here(self, code: int, headers: HeaderLines) -> None:
        self._do_here("hangup", lambda call: call.hangup(_operation(code, headers)))

    def _progress_here(self) -> int:
        return _native.progress(self._call.getId()) if self._call is not None and self._call.isActive() else 0

    def _do_here(self, verb: str, act: Callable[[CallObject], None]) -> None:
        """PJSIP refuses a verb in a call that the peer ends at this moment; its end is reported by its own way."""
        if self._call is None or not self._call.isActive():
            return
        try:
            act(self._call)
        except pj.Error as error:
            log.info("sip.verb_refused", verb=verb, reason=error.reason)


class DialogRegistry:
    """Every live call object. They are made and dropped on the owner's thread or PJSIP's, never by the collector."""

    def __init__(
        self,
        owner: Owner,
        pump: Pump,
        loop: asyncio.AbstractEventLoop,
        on_incoming: Callable[[Leg], None],
        local_host: str | None,
    ) -> None:
        """`local_host`: how From names us in calls that we make; None: by the address on the route to the peer."""
        self.legs: dict[int, Leg] = {}
        self._calls: dict[int, CallObject] = {}
        self._dialogs: dict[int, PjDialog] = {}
        self._owner = owner
        self._pump = pump
        self._loop = loop
        self._on_incoming = on_incoming
        self._local_host = local_host
        self._refusals: set[asyncio.Task[None]] = set()

    # ---- PJSIP's threads ----

    def incoming(self, account: pj.Account, prm: pj.OnIncomingCallParam) -> None:
        """A new INVITE. The call object must exist when this returns, else pjsua2 refuses the call."""
        call = CallObject(account, self, prm.callId)
        info, message = call.getInfo(), prm.rdata.wholeMsg
        facts = LegFacts(
            sip_call_id=headers.printable(info.callIdString),
            direction="inbound",
            source=headers.host_of(prm.rdata.srcAddress),
            request_user=headers.request_user(message),
            to=headers.party(headers.value(message, "To", "t")),
            sender=headers.party(headers.value(message, "From", "f")),
            sender_tag=headers.tag(headers.value(message, "From", "f")),
            authorization=headers.value(message, "Authorization", "Authorization")[:LONGEST_AUTHORIZATION],
            headers=carried(message),
        )
        leg = self._adopt(call, facts)
        self._post(self._offer, leg)

    def ended(self, call: CallObject, code: int, reason: str, reasons: str) -> None:
        """The dialog is over. The object is dropped later, on the owner's thread. `reasons`: the peer's Reason
        headers."""
        if call.leg is not None:
            why = cause.read(reasons)
            self._post(self._leg_ended, call.key, call.leg, code, headers.printable(reason), why)
        self._owner.post(self._drop_here, call.key)

    def rings(self, call: CallObject) -> None:
        """The peer rings."""
        if call.leg is not None:
            self._post(call.leg._has_rung)

    def accepted(self, call: CallObject) -> None:
        """The peer has answered."""
        if call.leg is not None:
            self._post(call.leg._has_been_answered)

    def has_media(self, call: CallObject, media: Media, held: bool) -> None:
        """Sound flows."""
        if call.leg is not None:
            self._post(call.leg._has_media, media, held)

    def has_no_slot(self, call: CallObject) -> None:
        """The pump is full: without sound the call is of no use."""
        log.error("sip.no_slot", sip_call_id=call.leg.sip_call_id if call.leg else None)
        dialog = self._dialogs.get(call.key)
        if dialog:
            self._owner.post(dialog._bye_here, 503, ())

    def has_no_answer(self, call: CallObject) -> None:
        """The ACK has brought no answer to our offer (RFC 3261 13.2.2.4): there will be no sound."""
        log.info("sip.no_answer", sip_call_id=call.leg.sip_call_id if call.leg else None)
        dialog = self._dialogs.get(call.key)
        if dialog:
            self._owner.post(dialog._bye_here, 488)

    def has_digit(self, call: CallObject, digit: str, way: DigitWay) -> None:
        """A digit came. SIP INFO may say anything in its place, and RFC 4733 knows events that are no digits."""
        if call.leg is not None and (key := digit.upper()) in KEYS:
            self._post(call.leg._has_digit, key, way)

    # ---- the event loop ----

    async def place(self, account: pj.Account, invitation: Invitation) -> Leg:
        """Send an INVITE. Raises `ConnectionError` when it cannot be sent."""
        return await self._owner.run(self._place_here, account, invitation)

    async def hang_up_all(self, timeout_s: float = 2.0) -> None:
        """End every leg and wait until they are gone, at most `timeout_s`."""
        legs = list(self.legs.values())
        if legs:
            await asyncio.gather(*(leg.hangup() for leg in legs))
            await asyncio.wait([leg.ended for leg in legs], timeout=timeout_s)
        await self._owner.run(self._drop_all_here)

    def _offer(self, leg: Leg) -> None:
        """What the program does with a new leg may fail; then the caller is told, and the next call is served."""
        try:
            self._on_incoming(leg)
        except Exception:
            log.exception("sip.incoming_failed", sip_call_id=leg.sip_call_id)
            self._refusals.add(refusal := self._loop.create_task(leg.reject(500)))
            refusal.add_done_callback(self._refusals.discard)

    def _leg_ended(self, key: int, leg: Leg, code: int, reason: str, why: cause.Reason) -> None:
        self.legs.pop(key, None)
        leg._has_ended(code, reason, why)

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    # ---- the owner's thread (and, for _adopt, PJSIP's) ----

    def _adopt(self, call: CallObject, facts: LegFacts) -> Leg:
        dialog = PjDialog(self._owner, call)
        leg = call.leg = Leg(facts, dialog, self._pump, self._loop)
        self.legs[call.key] = leg
        self._calls[call.key] = call
        self._dialogs[call.key] = dialog
        return leg

    def _place_here(self, account: pj.Account, invitation: Invitation) -> Leg:
        uri, caller = invitation.uri, invitation.caller
        identity = self._identity(invitation)
        asserted = (("P-Asserted-Identity", identity),) if identity else ()
        operation = _operation(0, (*asserted, *invitation.headers))
        operation.opt.customCallId = invitation.sip_call_id
        operation.txOption.localUri = identity
        call = CallObject(account, self)
        facts = LegFacts(
            sip_call_id=invitation.sip_call_id,
            direction="outbound",
            source="",
            request_user=headers.uri_user(uri),
            to=headers.party(uri),
            sender=caller or headers.Party("", ""),
        )
        leg = self._adopt(call, facts)
        try:
            call.makeCall(uri, operation)
        except pj.Error as error:
            self.legs.pop(call.key, None)
            self._drop_here(call.key)
            raise ConnectionError(f"no INVITE could be sent: {error.reason}") from error
        return leg

    def _identity(self, invitation: Invitation) -> str:
        """What From says; "": what the account says."""
        if invitation.caller is None:
            return ""
        domain = invitation.domain or self._local_host or _host_towards(invitation.uri)
        return headers.name_addr(invitation.caller, domain)

    def _drop_here(self, key: int) -> None:
        dialog = self._dialogs.pop(key, None)
        if dialog:
            dialog.forget()
        call = self._calls.pop(key, None)
        if call:
            call.leg = None

    def _drop_all_here(self) -> None:
        for key in list(self._calls):
            self._drop_here(key)


def _has_sound(info: pj.CallInfo) -> bool:
    """It has a stream, or will have one when it is not held any more."""
    return any(media.type == pj.PJMEDIA_TYPE_AUDIO and media.status in _WITH_STREAM for media in info.media)


def _came_of_silence(event: pj.SipEvent) -> bool:
    """A transaction timed out or lost its transport; PJSIP makes a 408 or 503 of that, as if the peer had said so."""
    silent = (pj.PJSIP_EVENT_TIMER, pj.PJSIP_EVENT_TRANSPORT_ERROR)
    return event.type == pj.PJSIP_EVENT_TSX_STATE and event.body.tsxState.type in silent


def _host_towards(uri: str) -> str:
    """Our address on the route to the URI's host, an IP address: a connected UDP socket knows it, and no packet is
    sent. Raises `ConnectionError` when there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((headers.uri_host(uri), 9))
        except OSError as error:
            raise ConnectionError(f"no INVITE could be sent: {error.strerror}") from error
        return str(probe.getsockname()[0])


def _operation(code: int, headers: HeaderLines) -> pj.CallOpParam:
    operation = pj.CallOpParam(True)
    operation.opt.audioCount = 1
    operation.opt.videoCount = 0
    operation.opt.textCount = 0  # else each call offers real-time text, with a thread and 300 ms at its end
    operation.statusCode = code
    for name, value in headers:
        header = pj.SipHeader()
        header.hName, header.hValue = name, value
        operation.txOption.headers.append(header)
    return operation
