"""The live calls: holds pjsua2's call objects until they have ended, and creates a leg for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pjsua2 as pj
import structlog

from media.dtmf.keys import KEYS, DtmfMethod
from sipcore import _native
from sipcore.audio.pump import Pump
from sipcore.dialogs.dialog_probes import DialogProbes
from sipcore.dialogs.dialog_record import DialogJournal, DialogRecord
from sipcore.dialogs.invite import IdentityHeaders, InvitePath, OutboundInvite, set_route, to_invite_error
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.invite_failover import InviteFailover, InviteFailure
from sipcore.dialogs.leg import InviteFacts, Leg, Media
from sipcore.dialogs.leg_driver import LegDriver
from sipcore.dialogs.pj_call import PjCall, PjDialogControl, call_params
from sipcore.dialogs.refer_client import ReferClient
from sipcore.dialogs.refer_service import ReferService
from sipcore.messages import headers, reason_header
from sipcore.messages.captured_headers import capture
from sipcore.messages.contact import redirect_contacts
from sipcore.messages.refer import ReferRequest, parse_refer
from sipcore.pjsip_thread import PjsipThread
from sipcore.security.srtp import CleartextSdesWarning, MediaEncryption

log = structlog.get_logger(__name__)

MAX_AUTHORIZATION_LENGTH = 2048
"""Characters; a longer Authorization header is no response to a challenge of ours."""


class CallRegistry:
    """Every live call object. They are created and deleted on the PJSIP thread or PJSIP's own, never by the garbage
    collector."""

    def __init__(
        self,
        pjsip_thread: PjsipThread,
        pump: Pump,
        loop: asyncio.AbstractEventLoop,
        on_incoming: Callable[[Leg], None],
        on_unresponsive: Callable[[str, str], None],
        journal: DialogJournal | None = None,
    ) -> None:
        """`on_incoming` is called with each new inbound leg, `on_unresponsive` with a host and the address of it that
        did not respond to an INVITE; both on the event loop. `journal` keeps the dialogs of legs with a trunk."""
        self._journal = journal
        self._drivers: dict[int, LegDriver] = {}
        """The drivers of the live legs, by their calls' keys."""
        self._calls: dict[int, PjCall] = {}
        self._dialogs: dict[int, PjDialogControl] = {}
        self._cleartext_sdes = CleartextSdesWarning()
        self._pjsip_thread = pjsip_thread
        self._pump = pump
        self._loop = loop
        self._on_incoming = on_incoming
        self._delayed_ends: dict[int, InviteFailure] = {}
        """Ends of dialogs whose REFER is being served: the leg may continue with another call."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._refer_client = ReferClient(self._post)
        self._probes = DialogProbes(self._post)
        self._refers = ReferService(pjsip_thread, self._join_on_pjsip_thread)
        self._failover = InviteFailover(
            self._start_task, self._is_current, self._resend, self._give_up, self._end_leg, on_unresponsive
        )

    @property
    def live_legs(self) -> int:
        """Legs that have not ended."""
        return len(self._drivers)

    def install_on_pjsip_thread(self) -> None:
        """On the PJSIP thread, when PJSUA is initialized."""
        self._refer_client.install_on_pjsip_thread()
        self._probes.install_on_pjsip_thread()

    # ---- PJSIP's threads ----

    def on_invite(self, account: pj.Account, prm: pj.OnIncomingCallParam) -> None:
        """A new INVITE. The call object must exist when this returns, else pjsua2 refuses the call."""
        call = PjCall(account, self, prm.callId)
        info, message = call.getInfo(), prm.rdata.wholeMsg
        from_value = headers.header_value(message, "From", "f")
        facts = InviteFacts(
            sip_call_id=headers.printable(info.callIdString),
            direction="inbound",
            source=headers.without_port(prm.rdata.srcAddress),
            request_user=headers.request_user(message),
            request_host_port=headers.uri_host_port(headers.request_uri(message)),
            to_addr=headers.parse_name_addr(headers.header_value(message, "To", "t")),
            from_addr=headers.parse_name_addr(from_value),
            from_tag=headers.parse_tag(from_value),
            authorization=headers.header_value(message, "Authorization", "Authorization")[:MAX_AUTHORIZATION_LENGTH],
            headers=capture(message),
        )
        call.peer = facts.source
        driver = self._adopt(call, facts)
        self._post(self._report_incoming, driver.leg)

    def status_for_refer(self, call: PjCall, request: str) -> int:
        """The status for a REFER: 603 when it is declined, 100 when the final one follows later. One REFER at a time is
        served."""
        driver, refer = call.driver, parse_refer(request)
        if driver is None or driver.leg.on_refer is None:
            log.info("sip.refer_refused", sip_call_id=driver.leg.sip_call_id if driver else None, peer=call.peer)
            return 603
        if driver.refer is not None:
            self._post(self._start_task, self._refers.report_declined(call, driver.leg, refer))
            return 603
        driver.refer = refer
        self._post(self._start_task, self._serve_refer(call, call.getId(), driver, refer))
        return 100

    def status_for_replaces(self, call: PjCall, source: str) -> int:
        """The status for an INVITE with Replaces (RFC 3891) from that address: 200 from the peer's own address, or from
        one that `Leg.may_be_replaced_by` allows."""
        if call.driver is None:
            return 481
        may_replace = call.driver.leg.may_be_replaced_by
        try:
            return 200 if source == call.peer or (may_replace and may_replace(source)) else 403
        except Exception as error:
            log.error("sip.replacement_failed", peer=call.peer, source=source, error=repr(error), exc_info=error)
            return 500

    def on_replaced(self, before: PjCall, after: PjCall) -> None:
        """Another call replaces the leg's call."""
        driver = before.driver
        if driver is None:
            return
        before.driver = None
        self._drivers.pop(before.key, None)
        self._attach(after, driver, self._control(after))
        log.info("sip.call_replaced", sip_call_id=driver.leg.sip_call_id, by=after.peer)
        self._post(self._start_task, self._after_replacement(driver))

    def on_ended(self, call: PjCall, code: int, reason: str, reasons: str) -> None:
        """The dialog is over. The object is dropped later, on the PJSIP thread. `reasons`: the peer's Reason
        headers."""
        if call.driver is not None:
            failure = InviteFailure.parse(code, reason, reasons)
            self._post(self._dialog_ended, call.key, call.driver, failure)
        self._pjsip_thread.post(self._drop_on_pjsip_thread, call.key)

    def on_redirected(self, call: PjCall, code: int, response: pj.SipRxData) -> None:
        """A 3xx response; the event loop decides whether the leg ends."""
        if call.driver is not None:
            contacts = redirect_contacts(response.wholeMsg, headers.without_port(response.srcAddress))
            self._post(self._start_task, self._failover.on_redirected(call, call.driver, contacts, code))
        self._pjsip_thread.post(self._drop_on_pjsip_thread, call.key)

    def on_no_response(self, call: PjCall, code: int, reason: str, reasons: str) -> None:
        """The target did not respond, or responded 503; another one may take the call."""
        if call.driver is not None:
            failure = InviteFailure.parse(code, reason, reasons)
            self._post(self._start_task, self._failover.on_no_response(call, call.driver, failure))
        self._pjsip_thread.post(self._drop_on_pjsip_thread, call.key)

    def on_optional_srtp_refused(self, call: PjCall, code: int, reason: str, reasons: str) -> None:
        """488 to an offer of optional SRTP; the peer may require SRTP."""
        if call.driver is not None:
            failure = InviteFailure.parse(code, reason, reasons)
            self._post(self._start_task, self._failover.on_optional_srtp_refused(call, call.driver, failure))
        self._pjsip_thread.post(self._drop_on_pjsip_thread, call.key)

    def on_ringing(self, call: PjCall) -> None:
        """A provisional response to an outbound INVITE."""
        if call.driver is not None:
            self._post(call.driver.on_ringing)

    def on_answered(self, call: PjCall) -> None:
        """A 2xx response to an outbound INVITE."""
        if call.driver is not None:
            self._post(call.driver.on_answered)

    def on_acknowledged(self, call: PjCall) -> None:
        """The ACK of an INVITE was sent or received."""
        if call.driver is not None:
            self._post(call.driver.on_acknowledged)

    def on_dialog(self, call: PjCall, record: DialogRecord | None) -> None:
        """The dialog was established or has changed; None: it is over."""
        self._post(self._record_dialog, call.key, call.driver, record)

    def on_media(self, call: PjCall, media: Media, held: bool) -> None:
        """The call has an audio stream in a slot of the pump."""
        if call.driver is not None:
            self._post(call.driver.on_media, media, held)

    def on_media_encryption(self, encryption: MediaEncryption) -> None:
        """The SRTP keying of a call's audio is agreed."""
        self._post(self._cleartext_sdes.check, encryption)

    def on_no_pump_slot(self, call: PjCall) -> None:
        """The pump is full: the call ends with 503, because it can have no audio."""
        log.error("sip.no_slot", sip_call_id=call.driver.leg.sip_call_id if call.driver else None)
        self._bye(call, 503)

    def on_no_sdp_answer(self, call: PjCall) -> None:
        """The ACK brought no usable SDP answer to our offer (RFC 3261 13.2.2.4): the call ends with 488."""
        log.info("sip.no_answer", sip_call_id=call.driver.leg.sip_call_id if call.driver else None)
        self._bye(call, 488)

    def _bye(self, call: PjCall, code: int) -> None:
        dialog = self._dialogs.get(call.key)
        if dialog:
            self._pjsip_thread.post(dialog.bye_on_pjsip_thread, code)

    def on_digit(self, call: PjCall, digit: str, method: DtmfMethod) -> None:
        """A DTMF digit. SIP INFO may contain any text, and RFC 4733 has events that are no digits."""
        if call.driver is not None and (key := digit.upper()) in KEYS:
            self._post(call.driver.on_digit, key, method)

    # ---- the event loop ----

    async def send_invite(self, invite: OutboundInvite) -> Leg:
        """Send an INVITE; returns its leg. Raises `InviteError`."""
        return (await self._failover.send(invite, self._send)).leg

    async def hang_up_all(self, timeout_s: float = 2.0) -> None:
        """End every leg and wait until they are gone, at most `timeout_s` seconds."""
        legs = [driver.leg for driver in self._drivers.values()]
        if legs:
            await asyncio.gather(*(leg.hangup() for leg in legs))
            await asyncio.wait([leg.ended for leg in legs], timeout=timeout_s)

    def _record_dialog(self, key: int, driver: LegDriver | None, record: DialogRecord | None) -> None:
        if self._journal is None:
            return
        if record is None:
            self._journal.remove(key)
        elif driver is not None and driver.leg.trunk_key:
            self._journal.store(key, driver.leg.trunk_key, record)

    def _report_incoming(self, leg: Leg) -> None:
        """Call `on_incoming`; an error is answered with 500 and affects no other call."""
        try:
            self._on_incoming(leg)
        except Exception:
            log.exception("sip.incoming_failed", sip_call_id=leg.sip_call_id)
            self._start_task(leg.reject(500))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(task := self._loop.create_task(work))
        task.add_done_callback(self._tasks.discard)

    async def _serve_refer(self, call: PjCall, number: int, driver: LegDriver, refer: ReferRequest) -> None:
        """Serve a REFER, then end the call that was transferred, or the leg whose call has ended meanwhile."""
        dialog = self._dialogs.get(call.key)
        code = await self._refers.serve(call, number, driver, dialog, refer)
        end = self._delayed_ends.pop(call.key, None)
        if end is not None and code != 200:
            self._end_leg(call.key, driver, end)
        elif code == 200 and dialog:
            await dialog.bye(reason_header.format_reason(reason_header.q850_cause(reason_header.NORMAL_CLEARING)))

    async def _after_replacement(self, driver: LegDriver) -> None:
        if driver.leg.facts.direction == "outbound":
            driver.on_answered()  # the callee before may have been about to answer
        if driver.hung_up:
            await driver.leg.hangup()

    async def _send(self, path: InvitePath, invite: OutboundInvite) -> tuple[PjCall, LegDriver]:
        return await self._pjsip_thread.run(self._send_new_on_pjsip_thread, path, invite)

    async def _is_current(self, call: PjCall, driver: LegDriver) -> bool:
        """Runs on the PJSIP thread, after its present work, because PJSIP reports a failure before `makeCall`
        returns."""
        return await self._pjsip_thread.run(lambda: self._drivers.get(call.key) is driver)

    async def _resend(
        self, before: PjCall, driver: LegDriver, path: InvitePath, invite: OutboundInvite
    ) -> tuple[PjCall, LegDriver]:
        return await self._pjsip_thread.run(self._resend_on_pjsip_thread, before, driver, path, invite), driver

    async def _give_up(self, call: PjCall) -> bool:
        return await self._pjsip_thread.run(self._give_up_on_pjsip_thread, call)

    def _dialog_ended(self, key: int, driver: LegDriver, failure: InviteFailure) -> None:
        """A leg whose REFER is being served waits for its result."""
        if self._drivers.get(key) is not driver:
            return
        if driver.refer is not None and not driver.hung_up:
            self._delayed_ends[key] = failure
        else:
            self._end_leg(key, driver, failure)

    def _end_leg(self, key: int, driver: LegDriver, failure: InviteFailure) -> None:
        self._drivers.pop(key, None)
        driver.on_ended(failure.code, failure.reason, failure.header)

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    # ---- the PJSIP thread (and, for _adopt, PJSIP's own) ----

    def _adopt(self, call: PjCall, facts: InviteFacts) -> LegDriver:
        """Create a leg for a new call."""
        dialog = self._control(call)
        driver = LegDriver(facts, dialog, self._pump, self._loop)
        self._attach(call, driver, dialog)
        return driver

    def _control(self, call: PjCall) -> PjDialogControl:
        return PjDialogControl(self._pjsip_thread, call, self._refer_client, self._probes)

    def _attach(self, call: PjCall, driver: LegDriver, dialog: PjDialogControl) -> None:
        """Make this call the leg's current call."""
        driver.attach(dialog)
        call.driver = driver
        self._drivers[call.key] = driver
        self._calls[call.key] = call
        self._dialogs[call.key] = dialog

    def _send_new_on_pjsip_thread(self, path: InvitePath, invite: OutboundInvite) -> tuple[PjCall, LegDriver]:
        if not _native.rtp_ports_left():
            raise InviteError("no_local_port", "no INVITE could be sent: all ports of [sip] rtp_ports are in use")
        identity = invite.identity_headers(path)
        set_route(path)
        _native.call_table_make_room()
        call = PjCall(path.account, self)
        facts = InviteFacts(
            sip_call_id=invite.sip_call_id,
            direction="outbound",
            source="",
            request_user=headers.uri_user(path.uri),
            to_addr=headers.parse_name_addr(path.uri),
            from_addr=invite.caller.caller if invite.caller else headers.NameAddr("", ""),
        )
        driver = self._adopt(call, facts)
        driver.leg.trunk_key = invite.trunk_key
        self._send_on_pjsip_thread(call, path, invite, identity)
        return call, driver

    def _resend_on_pjsip_thread(
        self, before: PjCall, driver: LegDriver, path: InvitePath, invite: OutboundInvite
    ) -> PjCall:
        identity = invite.identity_headers(path)
        set_route(path)
        _native.call_table_make_room()
        call = PjCall(path.account, self)
        self._attach(call, driver, self._control(call))
        self._send_on_pjsip_thread(call, path, invite, identity)
        self._drivers.pop(before.key, None)
        return call

    def _send_on_pjsip_thread(
        self, call: PjCall, path: InvitePath, invite: OutboundInvite, identity: IdentityHeaders
    ) -> None:
        params = call_params(0, (*identity.lines, *invite.headers))
        params.opt.customCallId = invite.sip_call_id
        params.txOption.localUri = identity.from_value
        call.invite, call.path = invite, path
        _native.srtp_require(invite.srtp == "required")
        _native.codecs_of_next_invites(invite.codecs)
        try:
            call.makeCall(path.uri, params)
        except pj.Error as error:
            self._drivers.pop(call.key, None)
            self._drop_on_pjsip_thread(call.key)
            raise to_invite_error(error) from error
        finally:
            _native.srtp_require(False)
            _native.codecs_of_next_invites(())

    def _give_up_on_pjsip_thread(self, call: PjCall) -> bool:
        """End a call without any response; a late response gets its CANCEL. False when there was one."""
        dialog = self._dialogs.get(call.key)
        if dialog is None or call.driver is None or not call.isActive() or _native.invite_status(call.getId()):
            return False
        call.driver = None
        dialog.bye_on_pjsip_thread()
        return True

    def _join_on_pjsip_thread(self, before: PjCall, driver: LegDriver, new: Leg) -> LegDriver | None:
        """Let a leg continue with the call and the stream of another leg, whose driver is returned; None when either
        has none any more."""
        calls = ((call, call.driver) for call in self._calls.values())
        after, other = next(((call, own) for call, own in calls if own is not None and own.leg is new), (None, None))
        if after is None or other is None or not driver.take_over_stream(other):
            return None
        before.driver = None
        for key in (before.key, after.key):
            self._drivers.pop(key, None)
        self._attach(after, driver, self._control(after))
        return other

    def _drop_on_pjsip_thread(self, key: int) -> None:
        dialog = self._dialogs.pop(key, None)
        if dialog:
            dialog.detach()
        call = self._calls.pop(key, None)
        if call:
            call.driver = None

    def drop_all_on_pjsip_thread(self) -> None:
        """Delete the objects of calls that have not ended. Only after PJSIP was shut down: before, one of its threads
        may be in a callback of such an object."""
        for key, call in list(self._calls.items()):
            _native.detach_call(call.getId(), int(call.this))
            self._drop_on_pjsip_thread(key)
