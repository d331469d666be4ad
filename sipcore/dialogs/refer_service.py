"""Serves a peer's REFER (RFC 3515): accepts it, lets the leg take over the call to its target, and notifies the
peer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog

from sipcore import _native
from sipcore.dialogs.leg import Leg
from sipcore.dialogs.leg_driver import LegDriver
from sipcore.dialogs.pj_call import PjCall, PjDialogControl
from sipcore.messages.refer import ReferRequest
from sipcore.pjsip_thread import PjsipThread

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ReferService:
    """`join_on_pjsip_thread` lets a leg continue with the call and the stream of another leg, whose driver it returns;
    None when either has none any more. Event loop only."""

    pjsip_thread: PjsipThread
    join_on_pjsip_thread: Callable[[PjCall, LegDriver, Leg], LegDriver | None]

    async def report_declined(self, call: PjCall, leg: Leg, refer: ReferRequest) -> None:
        """Report a REFER that was received while another one is served; of several at once, one is reported."""
        if leg.on_refer is None or call.reporting_declined_refer:
            return
        call.reporting_declined_refer = True
        try:
            await leg.on_refer(replace(refer, refusal="another one is under way"), _accept_nothing)
        except Exception as error:
            log.error("sip.refusal_not_noted", sip_call_id=leg.sip_call_id, error=repr(error), exc_info=error)
        call.reporting_declined_refer = False

    async def serve(
        self, call: PjCall, number: int, driver: LegDriver, dialog: PjDialogControl | None, refer: ReferRequest
    ) -> int:
        """Transfer the leg to the target of a REFER and notify the peer, whose call may have ended meanwhile; returns
        the status of the REFER. `number` is PJSUA's, of the call."""
        event: str | None = None
        accepted = False

        async def accept() -> None:
            nonlocal accepted, event
            if accepted:
                return
            accepted = True
            call.accepted_refers += 1
            await self.pjsip_thread.run(_native.refer_respond, number, refer.cseq, 202)
            if dialog is not None and not refer.no_subscription:
                event = refer.event_header(call.accepted_refers == 1)
                await dialog.notify(event, 100)

        code = await self._transfer(call, driver, refer, accept)
        driver.refer = None
        if not accepted:
            await self.pjsip_thread.run(_native.refer_respond, number, refer.cseq, code)
        elif event and dialog:
            await dialog.notify(event, code)
        return code

    async def _transfer(
        self, call: PjCall, driver: LegDriver, refer: ReferRequest, accept: Callable[[], Awaitable[None]]
    ) -> int:
        """Let the leg take over the call to the REFER's target; returns the status of the REFER."""
        leg = driver.leg
        assert leg.on_refer is not None
        try:
            new = await leg.on_refer(refer, accept)
            if isinstance(new, int):
                return new
            await accept()
            join = self.join_on_pjsip_thread
            other = None if driver.hung_up else await self.pjsip_thread.run(join, call, driver, new)
            if other is not None:
                driver.on_stream_taken_over(other)
                log.info("sip.call_transferred", sip_call_id=leg.sip_call_id, to=new.facts.request_user)
                return 200
            await new.hangup()
            new.release()
        except Exception as error:
            log.error("sip.transfer_failed", sip_call_id=leg.sip_call_id, error=repr(error), exc_info=error)
        return 500


async def _accept_nothing() -> None:
    """Accepts a REFER that was declined already."""
