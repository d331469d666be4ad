"""The registry that keeps pjsua2's call objects alive until they have ended, and that makes legs of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pjsua2 as pj
import structlog

from media.dtmf.keys import KEYS, DtmfMethod
from sipcore import _native
from sipcore.audio.pump import Pump
from sipcore.dialogs.invite import InvitePath, OutboundInvite, failure, set_route
from sipcore.dialogs.invite_failover import InviteFailover, InviteFailure
from sipcore.dialogs.leg import InviteFacts, Leg, Media
from sipcore.dialogs.pj_call import PjCall, PjDialogControl, call_params
from sipcore.messages import headers, reason_header
from sipcore.messages.captured_headers import capture
from sipcore.messages.contact import redirect_contacts
from sipcore.messages.refer import ReferRequest
from sipcore.messages.refer import parse_refer as read_referral
from sipcore.pjsip_thread import PjsipThread
from sipcore.security.srtp import CleartextSdesWarning, MediaEncryption

log = structlog.get_logger(__name__)

MAX_AUTHORIZATION_LENGTH = 2048
"""Characters; more are no answer to a challenge of ours."""


class CallRegistry:
    """Every live call object. They are made and dropped on the owner's thread or PJSIP's, never by the collector."""

    def __init__(
        self,
        owner: PjsipThread,
        pump: Pump,
        loop: asyncio.AbstractEventLoop,
        on_incoming: Callable[[Leg], None],
        on_silent: Callable[[str, str], None],
    ) -> None:
        """`on_silent`: one of several addresses of a host did not answer a call."""
        self.legs: dict[int, Leg] = {}
        self._clear_keys = CleartextSdesWarning()
        self._calls: dict[int, PjCall] = {}
        self._dialogs: dict[int, PjDialogControl] = {}
        self._owner = owner
        self._pump = pump
        self._loop = loop
        self._on_incoming = on_incoming
        self._waiting: dict[int, InviteFailure] = {}
        """Ends of dialogs whose legs are being transferred."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._onward = InviteFailover(
            self._start, self._belongs, self._send_again, self._give_up, self._leg_ended, on_silent
        )

    # ---- PJSIP's threads ----

    def on_invite(self, account: pj.Account, prm: pj.OnIncomingCallParam) -> None:
        """A new INVITE. The call object must exist when this returns, else pjsua2 refuses the call."""
        call = PjCall(account, self, prm.callId)
        info, message = call.getInfo(), prm.rdata.wholeMsg
        facts = InviteFacts(
            sip_call_id=headers.printable(info.callIdString),
            direction="inbound",
            source=headers.without_port(prm.rdata.srcAddress),
            request_user=headers.request_user(message),
            request_host_port=headers.uri_host_port(headers.request_uri(message)),
            to_addr=headers.parse_name_addr(headers.header_value(message, "To", "t")),
            from_addr=headers.parse_name_addr(headers.header_value(message, "From", "f")),
            from_tag=headers.parse_tag(headers.header_value(message, "From", "f")),
            authorization=headers.header_value(message, "Authorization", "Authorization")[:MAX_AUTHORIZATION_LENGTH],
            headers=capture(message),
        )
        call.peer = facts.source
        leg = self._adopt(call, facts)
        self._post(self._offer, leg)

    def status_for_refer(self, call: PjCall, request: str) -> int:
        """What the other side is told that wants us to go on with somebody else; 100: it is told later. One wish at a
        time is heard."""
        leg, referral = call.leg, read_referral(request)
        if leg is None or leg.on_refer is None:
            log.info("sip.refer_refused", sip_call_id=leg.sip_call_id if leg else None, peer=call.peer)
            return 603
        if leg._referral is not None:
            self._post(self._start, self._note(call, leg, referral))
            return 603
        leg._referral = referral
        self._post(self._start, self._transfer(call, call.getId(), leg, referral))
        return 100

    def status_for_replaces(self, call: PjCall, source: str) -> int:
        """What somebody at this address is told who wants to go on with a call in the place of its other side."""
        leg = call.leg
        if leg is None:
            return 481
        try:
            return 200 if source == call.peer or (leg.may_be_replaced_by and leg.may_be_replaced_by(source)) else 403
        except Exception as error:
            log.error("sip.replacement_failed", peer=call.peer, source=source, error=repr(error), exc_info=error)
            return 500

    def on_replaced(self, before: PjCall, after: PjCall) -> None:
        """The leg goes on with another call."""
        leg = before.leg
        if leg is None:
            return
        before.leg = None
        self.legs.pop(before.key, None)
        self._attach(after, leg, PjDialogControl(self._owner, after))
        log.info("sip.call_replaced", sip_call_id=leg.sip_call_id, by=after.peer)
        self._post(self._start, self._has_changed_hands(leg))

    def on_ended(self, call: PjCall, code: int, reason: str, reasons: str) -> None:
        """The dialog is over. The object is dropped later, on the owner's thread. `reasons`: the peer's Reason
        headers."""
        if call.leg is not None:
            why = reason_header.parse_reason(reasons)
            self._post(self._dialog_ended, call.key, call.leg, code, headers.printable(reason), why)
        self._owner.post(self._drop_here, call.key)

    def on_redirected(self, call: PjCall, code: int, answer: pj.SipRxData) -> None:
        """The peer points to somebody else; whether the leg ends is decided on the event loop."""
        if call.leg is not None:
            contacts = redirect_contacts(answer.wholeMsg, headers.without_port(answer.srcAddress))
            self._post(self._start, self._onward.on_redirected(call, call.leg, contacts, code))
        self._owner.post(self._drop_here, call.key)

    def on_no_response(self, call: PjCall, code: int, reason: str, reasons: str) -> None:
        """Nobody is there, or has time; another address may."""
        if call.leg is not None:
            ending = InviteFailure(code, headers.printable(reason), reason_header.parse_reason(reasons))
            self._post(self._start, self._onward.on_no_response(call, call.leg, ending))
        self._owner.post(self._drop_here, call.key)

    def on_ringing(self, call: PjCall) -> None:
        """The peer rings."""
        if call.leg is not None:
            self._post(call.leg._has_rung)

    def on_answered(self, call: PjCall) -> None:
        """The peer has answered."""
        if call.leg is not None:
            self._post(call.leg._has_been_answered)

    def on_media(self, call: PjCall, media: Media, held: bool) -> None:
        """Sound flows."""
        if call.leg is not None:
            self._post(call.leg._has_media, media, held)

    def on_media_encryption(self, secrecy: MediaEncryption) -> None:
        """The two sides have agreed on how a call's sound is encrypted."""
        self._post(self._clear_keys.check, secrecy)

    def on_no_pump_slot(self, call: PjCall) -> None:
        """The pump is full: without sound the call is of no use."""
        log.error("sip.no_slot", sip_call_id=call.leg.sip_call_id if call.leg else None)
        dialog = self._dialogs.get(call.key)
        if dialog:
            self._owner.post(dialog._bye_here, 503)

    def on_no_sdp_answer(self, call: PjCall) -> None:
        """The ACK has brought no answer to our offer (RFC 3261 13.2.2.4), or none that can be: there is no sound."""
        log.info("sip.no_answer", sip_call_id=call.leg.sip_call_id if call.leg else None)
        dialog = self._dialogs.get(call.key)
        if dialog:
            self._owner.post(dialog._bye_here, 488)

    def on_digit(self, call: PjCall, digit: str, way: DtmfMethod) -> None:
        """A digit came. SIP INFO may say anything in its place, and RFC 4733 knows events that are no digits."""
        if call.leg is not None and (key := digit.upper()) in KEYS:
            self._post(call.leg._has_digit, key, way)

    # ---- the event loop ----

    async def send_invite(self, invitation: OutboundInvite) -> Leg:
        """Send an INVITE. Raises `ConnectionError` when it cannot be sent."""
        return await self._onward.send(invitation, self._send)

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
            self._start(leg.reject(500))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(task := self._loop.create_task(work))
        task.add_done_callback(self._tasks.discard)

    async def _note(self, call: PjCall, leg: Leg, referral: ReferRequest) -> None:
        """A wish that came while another one was heard; of many at once one is told of."""
        if leg.on_refer is None or call.reporting_declined_refer:
            return
        call.reporting_declined_refer = True
        try:
            await leg.on_refer(replace(referral, refusal="another one is under way"), _refuse)
        except Exception as error:
            log.error("sip.refusal_not_noted", sip_call_id=leg.sip_call_id, error=repr(error), exc_info=error)
        call.reporting_declined_refer = False

    async def _transfer(self, call: PjCall, number: int, leg: Leg, referral: ReferRequest) -> None:
        """Go on with whom the other side names, and tell it what became of that; it may have gone meanwhile. `number`
        is the call's, of PJSUA."""
        dialog = self._dialogs.get(call.key)
        event: str | None = None
        accepted = False

        async def accept() -> None:
            nonlocal accepted, event
            if accepted:
                return
            accepted = True
            call.accepted_refers += 1
            await self._owner.run(_native.refer_respond, number, referral.cseq, 202)
            if dialog is not None and not referral.no_subscription:
                event = referral.event_header(call.accepted_refers == 1)
                await dialog.notify(event, 100)

        code = await self._is_transferred(call, leg, referral, accept)
        leg._referral = None
        if not accepted:
            await self._owner.run(_native.refer_respond, number, referral.cseq, code)
        elif event and dialog:
            await dialog.notify(event, code)
        end = self._waiting.pop(call.key, None)
        if end is not None and code != 200:
            self._leg_ended(call.key, leg, end)
        elif code == 200 and dialog:
            await dialog.bye(reason_header.format_reason(reason_header.q850_cause(reason_header.NORMAL_CLEARING)))

    async def _is_transferred(
        self, call: PjCall, leg: Leg, referral: ReferRequest, accept: Callable[[], Awaitable[None]]
    ) -> int:
        assert leg.on_refer is not None
        try:
            new = await leg.on_refer(referral, accept)
            if isinstance(new, int):
                return new
            await accept()
            if not leg._hung_up and await self._owner.run(self._join_here, call, leg, new):
                leg._has_taken_over(new)
                log.info("sip.call_transferred", sip_call_id=leg.sip_call_id, to=new.facts.request_user)
                return 200
            await new.hangup()
            new.release()
        except Exception as error:
            log.error("sip.transfer_failed", sip_call_id=leg.sip_call_id, error=repr(error), exc_info=error)
        return 500

    async def _has_changed_hands(self, leg: Leg) -> None:
        if leg.facts.direction == "outbound":
            leg._has_been_answered()  # who was called may have been about to answer
        if leg._hung_up:
            await leg.hangup()

    async def _send(self, way: InvitePath, invitation: OutboundInvite) -> tuple[PjCall, Leg]:
        return await self._owner.run(self._place_here, way, invitation)

    async def _belongs(self, call: PjCall, leg: Leg) -> bool:
        """Asked for after whatever the owner's thread is about: PJSIP tells of a failure before `makeCall` does."""
        return await self._owner.run(lambda: self.legs.get(call.key) is leg)

    async def _send_again(
        self, before: PjCall, leg: Leg, way: InvitePath, invitation: OutboundInvite
    ) -> tuple[PjCall, Leg]:
        call = await self._owner.run(self._place_again_here, leg, way, invitation)
        self.legs.pop(before.key, None)
        return call, leg

    async def _give_up(self, call: PjCall) -> bool:
        return await self._owner.run(self._give_up_here, call)

    def _dialog_ended(self, key: int, leg: Leg, code: int, reason: str, why: reason_header.ReasonHeader) -> None:
        """A leg that is being transferred waits for what comes of that."""
        if leg._referral is not None and not leg._hung_up and self.legs.get(key) is leg:
            self._waiting[key] = InviteFailure(code, reason, why)
        elif self.legs.get(key) is leg:
            self._leg_ended(key, leg, InviteFailure(code, reason, why))

    def _leg_ended(self, key: int, leg: Leg, ending: InviteFailure) -> None:
        self.legs.pop(key, None)
        leg._has_ended(ending.code, ending.reason, ending.why)

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    # ---- the owner's thread (and, for _adopt, PJSIP's) ----

    def _adopt(self, call: PjCall, facts: InviteFacts) -> Leg:
        dialog = PjDialogControl(self._owner, call)
        leg = Leg(facts, dialog, self._pump, self._loop)
        self._attach(call, leg, dialog)
        return leg

    def _attach(self, call: PjCall, leg: Leg, dialog: PjDialogControl) -> None:
        """From now on this call is the leg's."""
        leg._dialog = dialog
        call.leg = leg
        self.legs[call.key] = leg
        self._calls[call.key] = call
        self._dialogs[call.key] = dialog

    def _place_here(self, way: InvitePath, invitation: OutboundInvite) -> tuple[PjCall, Leg]:
        if not _native.rtp_ports_left():
            raise ConnectionError("no INVITE could be sent: all ports of [sip] rtp_ports are in use")
        identity = invitation.asserted_identity(way)
        set_route(way)
        _native.call_table_make_room()
        call = PjCall(way.account, self)
        facts = InviteFacts(
            sip_call_id=invitation.sip_call_id,
            direction="outbound",
            source="",
            request_user=headers.uri_user(way.uri),
            to_addr=headers.parse_name_addr(way.uri),
            from_addr=invitation.caller or headers.NameAddr("", ""),
        )
        leg = self._adopt(call, facts)
        self._send_here(call, way, invitation, identity)
        return call, leg

    def _place_again_here(self, leg: Leg, way: InvitePath, invitation: OutboundInvite) -> PjCall:
        identity = invitation.asserted_identity(way)
        set_route(way)
        _native.call_table_make_room()
        call = PjCall(way.account, self)
        self._attach(call, leg, PjDialogControl(self._owner, call))
        self._send_here(call, way, invitation, identity)
        return call

    def _send_here(self, call: PjCall, way: InvitePath, invitation: OutboundInvite, identity: str) -> None:
        asserted = (("P-Asserted-Identity", identity),) if identity else ()
        operation = call_params(0, (*asserted, *invitation.headers))
        operation.opt.customCallId = invitation.sip_call_id
        operation.txOption.localUri = invitation.from_header(way) or identity
        call.invite, call.path = invitation, way
        try:
            call.makeCall(way.uri, operation)
        except pj.Error as error:
            self.legs.pop(call.key, None)
            self._drop_here(call.key)
            raise failure(error) from error

    def _give_up_here(self, call: PjCall) -> bool:
        """End a call that has had no response at all; a late one gets its CANCEL. False when there was one."""
        dialog = self._dialogs.get(call.key)
        if dialog is None or call.leg is None or not call.isActive() or _native.invite_status(call.getId()):
            return False
        call.leg = None
        dialog._bye_here()
        return True

    def _join_here(self, before: PjCall, leg: Leg, other: Leg) -> bool:
        """Let a leg go on with the call and the stream of another one; False when either has none any more."""
        after = next((each for each in self._calls.values() if each.leg is other), None)
        if after is None or leg._released or not leg.has_media or not other.has_media:
            return False
        if not self._pump.take_over(leg._media.result().slot, other._media.result().slot):
            return False
        before.leg = None
        for key in (before.key, after.key):
            self.legs.pop(key, None)
        self._attach(after, leg, PjDialogControl(self._owner, after))
        return True

    def _drop_here(self, key: int) -> None:
        dialog = self._dialogs.pop(key, None)
        if dialog:
            dialog.detach()
        call = self._calls.pop(key, None)
        if call:
            call.leg = None

    def _drop_all_here(self) -> None:
        for key in list(self._calls):
            self._drop_here(key)


async def _refuse() -> None:
    """Who was told 603 already is told nothing more."""
