"""Outbound calls: queued, paced, placed through the trunk of their number, and then a session as any other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

import sqlalchemy as sa
import structlog

from calls import metrics
from calls.admission.model_load import ModelLoadShedder
from calls.call_record import sip_metadata
from calls.call_record.end_reason import end_status_of, ended_reason_of_invite_error
from calls.call_record.outcome import CallOutcome
from calls.outbound import audit_log, permissions
from calls.outbound.dialer import OutboundDialer, trunk_problem
from calls.outbound.pacing import completes_before_end
from calls.outbound.permissions import DialClearance
from calls.session.call_session import CallSession
from calls.session.dependencies import CallDependencies
from calls.session.lifecycle import CallLifecycle, SessionState
from calls.session.progress import write_progress
from calls.session.snapshot import CallSnapshot
from calls.session.transfer import ReroutePolicy, TransferSupport
from config.clock import utc_now
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import Leg
from sipcore.messages.headers import NameAddr
from sipcore.trunks.trunk import Trunk
from storage.calls import calls
from storage.calls.calls import Call, EndedReason, QueuedCall
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.phone_numbers.trunk_rules import Policy

log = structlog.get_logger()


@dataclass(frozen=True)
class OutboundRoute(DialClearance):
    """The number, agent and trunk that an outbound call is placed with."""

    trunk: Trunk


def _store_placement(conn: sa.Connection, call: Call, policy: Policy) -> DialClearance | str:
    """The transaction before the INVITE: stores its Call-ID, or in the audit log why the call is not placed."""
    clearance = permissions.recheck_dial(conn, call, policy)
    if isinstance(clearance, str):
        audit_log.log_attempt(audit_log.record_not_dialled(conn, call, clearance))
    else:
        calls.mark_dialling(conn, call.id, str(call.call_sid))
    return clearance


class OutboundCall:
    """`run` is the whole life of a queued call; `end` ends it from outside."""

    def __init__(
        self, queued: QueuedCall, deps: CallDependencies, dialer: OutboundDialer, transfers: TransferSupport
    ) -> None:
        self.call: Call = queued.call
        self._agent = queued.agent
        self._number = queued.number
        self._deps = deps
        self._dialer = dialer
        self._transfers = transfers
        self._lifecycle = CallLifecycle(SessionState.QUEUED)
        self._session: CallSession | None = None
        """The call from its INVITE on."""
        self._admitted_by: ModelLoadShedder | None = None
        """The load shedder that has admitted the call and does not count it as active yet."""
        self._log = log.bind(call_id=self.call.id)

    @property
    def has_leg(self) -> bool:
        """True once the INVITE was sent."""
        return self._session is not None

    def snapshot(self) -> CallSnapshot:
        """The state of the call at this moment."""
        return CallSnapshot(self.call) if self._session is None else self._session.snapshot()

    def end(self, reason: EndedReason) -> None:
        """End the call; the first reason counts."""
        self._lifecycle.end(reason)

    async def run(self) -> None:
        """Wait for a slot, place the call, run its session, store its end. An error ends this call as `error` and is
        logged once. Raises `StorageUnavailable` when the end could not be stored."""
        try:
            self._session = await self._place()
        except Exception as error:  # noqa: BLE001 - it ends this call alone
            self._log.error("call.failed", error=repr(error), exc_info=error)
            self.end("error")
        if self._admitted_by is not None:
            if self._session is None:
                self._admitted_by.withdraw(queued=True)
            self._admitted_by.entered()
        if self._session is None:
            await self._finish_unplaced(await self._lifecycle.ending)
        else:
            await self._session.run()

    async def _place(self) -> CallSession | None:
        """The session of the call, once its INVITE was sent; None when the call ends before."""
        try:
            route = await self._find_route()
            leg = None if route is None else await self._send_invite(route)
        except InviteError as error:
            self._give_up(error)
            return None
        if route is None or leg is None:
            return None
        self._lifecycle.invite_sent()
        return CallSession(
            call=self.call,
            agent=route.agent,
            number=route.number,
            leg=leg,
            deps=self._deps,
            transfers=self._transfers,
            lifecycle=self._lifecycle,
        )

    async def _wait_for_slot(self) -> bool:
        """Wait until the models answer in time, and for the pacer. False when the call ends first."""
        load_shedder, pacer = self._dialer.load_shedder, self._dialer.pacer
        if load_shedder is None:
            return await pacer.wait_unless_ending(self._lifecycle.ending)
        return await completes_before_end(self._lifecycle.ending, load_shedder.wait_for_slot(pacer.wait))

    def _enter_load(self) -> bool:
        """Have the load shedder admit the call. False when the models can take no further call any more."""
        load_shedder = self._dialer.load_shedder
        if load_shedder is not None:
            if not load_shedder.try_enter():
                return False
            self._admitted_by = load_shedder
        return True

    async def _find_route(self) -> OutboundRoute | None:
        """The route as all is stored when the call has its slot: it was queued a while ago. None when the call ends
        before. The load shedder admits it only when its trunk, which may take time to find, is known. A number that
        was changed meanwhile is read again. Raises `InviteError` when the call may not or cannot be placed."""
        problem = None if self._number is None else trunk_problem(self._number, tcp=self._dialer.tcp)
        if problem is not None:
            raise InviteError("trunk_unusable", problem)
        while True:
            if not await self._wait_for_slot():
                return None
            number = await self._current_number()
            trunk = await self._trunk(number)
            if self._enter_load():
                break
        self.call = replace(self.call, call_sid=str(uuid4()))
        while True:
            clearance = await self._clear()
            if isinstance(clearance, str):
                raise InviteError("not_permitted", clearance)
            if clearance.number == number:
                break
            number = clearance.number
            trunk = await self._trunk(number)
        self._agent = clearance.agent
        if isinstance(trunk, InviteError):
            raise trunk
        return OutboundRoute(clearance.number, clearance.agent, trunk)

    async def _current_number(self) -> PhoneNumber | None:
        read = partial(
            phone_numbers.get, organization_id=self.call.organization_id, number_id=self.call.phone_number_id or ""
        )
        return await self._deps.database.read(read, priority="calls")

    async def _trunk(self, number: PhoneNumber | None) -> Trunk | InviteError:
        """The number's trunk, or why there is none."""
        if number is None:
            return InviteError("trunk_unusable", "the number does not exist")
        try:
            return await self._dialer.trunk(number)
        except InviteError as error:
            return error

    async def _clear(self) -> DialClearance | str:
        """What the call may be placed with, or why it may not, which is stored. Raises `StorageUnavailable` when that
        can neither be stored nor read."""
        database, policy = self._deps.database, self._dialer.trunk_policy
        write = partial(_store_placement, call=self.call, policy=policy)
        stored = await write_progress(database, self.call.id, write)
        if stored is not None:
            return stored
        return await database.read(partial(permissions.recheck_dial, call=self.call, policy=policy), priority="calls")

    async def _send_invite(self, route: OutboundRoute) -> Leg | None:
        """Send the INVITE; None when the call is ending. Raises `InviteError` when the INVITE cannot be sent."""
        number, trunk = route.number, route.trunk
        if self._lifecycle.is_ending:
            return None
        policy = ReroutePolicy(self.call, number, self._deps.database, self._deps.aliases_of)
        leg = await self._dialer.dial(
            self.call.customer_number,
            trunk=trunk,
            caller=NameAddr(number.number, number.name or ""),
            sip_call_id=self.call.call_sid,
            headers=sip_metadata.outbound_headers(self.call.metadata),
            follow=policy.allow_redirect,
        )
        metrics.PLACED_CALLS.inc()
        self._log.info(
            "call.placed",
            trunk=trunk.host,
            number=number.number,
            customer=self.call.customer_number,
            agent=self.call.agent_id,
            sip_call_id=self.call.call_sid,
        )
        return leg

    def _give_up(self, error: InviteError) -> None:
        self._log.warning("call.not_placed", why=error.detail, kind=error.kind)
        self.end(ended_reason_of_invite_error(error.kind))

    async def _finish_unplaced(self, reason: EndedReason) -> None:
        outcome = CallOutcome(status=end_status_of(reason, answered=False), reason=reason, ended_at=utc_now())
        await self._deps.finalizer.finish(self.call.id, outcome, self._agent)
        self._lifecycle.closed()
