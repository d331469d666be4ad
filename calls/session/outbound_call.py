"""Outbound calls: queued, paced, placed through the trunk of their number, then run as a session."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import uuid4

import sqlalchemy as sa
import structlog

from calls import metrics
from calls.admission.load_shedding import ModelLoadShedder
from calls.call_record import sip_metadata
from calls.call_record.end_reason import end_status_of, ended_reason_of_invite_error
from calls.call_record.outcome import CallOutcome
from calls.outbound import dial_audit, permissions
from calls.outbound.dialer import OutboundDialer, trunk_problem
from calls.outbound.pacing import run_unless_ending
from calls.outbound.permissions import DialAuthorization
from calls.post_call.journal_records import CallStart
from calls.session.best_effort_write import best_effort_write
from calls.session.call_session import CallSession
from calls.session.deferred_session import DeferredSession
from calls.session.dependencies import CallDependencies
from calls.session.lifecycle import CallLifecycle, SessionState
from calls.session.peer_reroute import ReferSupport, ReroutePolicy
from calls.session.transfer.call_transfers import TransferDependencies
from calls.webhooks import call_events
from config.clock import utc_now
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import Leg
from sipcore.messages.headers import NameAddr
from sipcore.trunks.trunk import Trunk
from storage.calls import calls, queued_calls
from storage.calls.calls import Call, EndedReason
from storage.calls.queued_calls import QueuedCall
from storage.database.errors import StorageUnavailable
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy

STORE_AGAIN_S: Final = 1.0
"""Interval of the attempts to store that a call is about to be dialled, while the database cannot."""

log = structlog.get_logger()


class CallTakenOver(Exception):
    """The call has ended, or another node has it: this one does not dial it."""


@dataclass(frozen=True)
class OutboundRoute(DialAuthorization):
    """The number, agent and trunk that an outbound call is placed with."""

    trunk: Trunk


def _store_placement(
    conn: sa.Connection, call: Call, policy: TrunkPolicy, number_with_trunk: PhoneNumber | None
) -> tuple[DialAuthorization | str, bool]:
    """Recheck the permissions of a call. Stores the Call-ID of its INVITE, with the event of its start if the number is
    still `number_with_trunk`, or in the audit log why it is not placed. Returns also True if there is an event. Raises
    `CallTakenOver`."""
    if not queued_calls.is_own(conn, call.id):
        raise CallTakenOver
    authorization = permissions.recheck_dial(conn, call, policy)
    if isinstance(authorization, str):
        dial_audit.log_attempt(dial_audit.record_not_dialled(conn, call, authorization))
    elif not calls.mark_dialling(conn, call.id, str(call.call_sid), authorization.agent.version):
        raise CallTakenOver
    elif authorization.number == number_with_trunk:
        started = replace(call, agent_version=authorization.agent.version)
        return authorization, call_events.add_started(conn, started, authorization.agent, utc_now())
    return authorization, False


class OutboundCall(DeferredSession):
    """`run` runs a queued call until its end is stored; `end` ends it from outside."""

    def __init__(
        self,
        queued: QueuedCall,
        deps: CallDependencies,
        dialer: OutboundDialer,
        transfers: ReferSupport,
        transfer_dependencies: TransferDependencies | None = None,
    ) -> None:
        self._transfer_dependencies = transfer_dependencies
        super().__init__(queued.call)
        self._agent = queued.agent
        self._number = queued.number
        self._deps = deps
        self._dialer = dialer
        self._transfers = transfers
        self._lifecycle = CallLifecycle(SessionState.QUEUED)
        self._admitted_by: ModelLoadShedder | None = None
        """The load shedder that has admitted the call, until it counts the call as active."""
        self._is_given_up = False
        self._log = log.bind(call_id=self.call.id)

    @property
    def has_leg(self) -> bool:
        """True once the INVITE was sent."""
        return self.session is not None

    def end(self, reason: EndedReason) -> None:
        """End the call; the first reason counts."""
        self._lifecycle.end(reason)

    def give_up(self) -> None:
        """Another node may dial the call, or has it already: this one neither dials nor ends it."""
        self._is_given_up = True
        self.end("server_shutdown")

    async def run(self) -> None:
        """Wait for a slot, place the call, run its session, store its end. An error ends this call as `error` and is
        logged once. Raises `StorageUnavailable` if the end could not be stored."""
        try:
            self.session = await self._place()
        except CallTakenOver:
            self._log.info("call.left_to_other_node")
            self.give_up()
        except Exception as error:  # noqa: BLE001 - it ends this call alone
            self._log.error("call.failed", error=repr(error), exc_info=error)
            self.end("error")
        if self._admitted_by is not None:
            if self.session is None:
                self._admitted_by.undo_admission(queued=True)
            self._admitted_by.end_admission()
        if self.session is None:
            await self._finish_unplaced(await self._lifecycle.ending)
        else:
            await self.session.run()

    async def _place(self) -> CallSession | None:
        """Returns the session of the call, once its INVITE was sent; None if the call ends before."""
        try:
            route = await self._find_route()
            leg = None if route is None else await self._send_invite(route)
        except InviteError as error:
            self._end_unplaced(error)
            return None
        if route is None or leg is None:
            return None
        self._lifecycle.mark_ringing()
        return CallSession(
            call=self.call,
            agent=route.agent,
            number=route.number,
            leg=leg,
            deps=self._deps,
            transfers=self._transfers,
            lifecycle=self._lifecycle,
            transfer_dependencies=self._transfer_dependencies,
        )

    async def _wait_for_slot(self) -> bool:
        """Wait until the models answer in time, and for the pacer, also while the database is away. Returns False if
        the call ends first."""
        while True:
            try:
                return await self._wait_for_pacer()
            except StorageUnavailable as error:
                self._log.debug("call.waits_for_database", cause=error.cause)
                await asyncio.wait((self._lifecycle.ending,), timeout=STORE_AGAIN_S)

    async def _wait_for_pacer(self) -> bool:
        load_shedder, pacer = self._dialer.load_shedder, self._dialer.pacer
        if load_shedder is None:
            return await pacer.wait_unless_ending(self._lifecycle.ending)
        return await run_unless_ending(self._lifecycle.ending, load_shedder.wait_for_slot(pacer.wait))

    def _admit(self) -> bool:
        """Have the load shedder admit the call. Returns False if the models have no capacity any more."""
        load_shedder = self._dialer.load_shedder
        if load_shedder is not None:
            if not load_shedder.try_admit_queued():
                return False
            self._admitted_by = load_shedder
        return True

    async def _find_route(self) -> OutboundRoute | None:
        """Returns the route by what is stored when the call has its slot, because it was queued a while ago; None if
        the call ends before. The load shedder admits it only after its trunk is known, because that may take time. A
        number that was changed meanwhile is read again. Raises `InviteError` if the call may not or cannot be
        placed."""
        problem = None if self._number is None else trunk_problem(self._number, tcp=self._dialer.tcp)
        if problem is not None:
            raise InviteError("trunk_unusable", problem)
        while True:
            if not await self._wait_for_slot():
                return None
            number = await self._current_number()
            trunk = await self._find_trunk(number)
            if self._admit():
                break
        self.call = replace(self.call, call_sid=str(uuid4()))
        while True:
            authorization = await self._recheck(None if isinstance(trunk, InviteError) else number)
            if authorization is None:
                return None
            if isinstance(authorization, str):
                raise InviteError("not_permitted", authorization)
            if authorization.number == number:
                break
            number = authorization.number
            trunk = await self._find_trunk(number)
        self._agent = authorization.agent
        self.call = replace(self.call, agent_version=authorization.agent.version)
        if isinstance(trunk, InviteError):
            raise trunk
        return OutboundRoute(authorization.number, authorization.agent, trunk)

    async def _current_number(self) -> PhoneNumber | None:
        read = partial(
            phone_numbers.get, organization_id=self.call.organization_id, number_id=self.call.phone_number_id or ""
        )
        return await self._deps.database.read(read, priority="calls")

    async def _find_trunk(self, number: PhoneNumber | None) -> Trunk | InviteError:
        """Returns the number's trunk, or why there is none."""
        if number is None:
            return InviteError("trunk_unusable", "the number does not exist")
        try:
            return await self._dialer.trunk(number)
        except InviteError as error:
            return error

    async def _recheck(self, number_with_trunk: PhoneNumber | None) -> DialAuthorization | str | None:
        """Returns the number and agent of a call that may be placed, else why not, which is stored; None if the call
        ends before. The call starts if the number is still `number_with_trunk`. What SQLite cannot store of that is
        stored with the next write of the call; PostgreSQL decides whether another node has the call, so that the call
        waits until it can. Raises `StorageUnavailable` if the permissions cannot be read, and `CallTakenOver`."""
        database, policy = self._deps.database, self._dialer.trunk_policy
        write = partial(_store_placement, call=self.call, policy=policy, number_with_trunk=number_with_trunk)
        stored = await best_effort_write(database, self.call.id, write)
        while stored is None and not database.is_sqlite:
            await asyncio.wait((self._lifecycle.ending,), timeout=STORE_AGAIN_S)
            if self._lifecycle.is_ending:
                return None
            stored = await best_effort_write(database, self.call.id, write)
        if stored is not None:
            authorization, has_event = stored
            if has_event:
                self._deps.webhook_queued()
            return authorization
        recheck = partial(permissions.recheck_dial, call=self.call, policy=policy)
        unstored = await database.read(recheck, priority="calls")
        if not isinstance(unstored, str) and unstored.number == number_with_trunk:
            self._deps.finalizer.outage_buffer.add_start(CallStart(self.call, unstored.agent, utc_now()))
        return unstored

    async def _send_invite(self, route: OutboundRoute) -> Leg | None:
        """Send the INVITE. Returns None if the call is ending. Raises `InviteError` if the INVITE cannot be sent."""
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
            follow=policy.authorize_redirect,
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

    def _end_unplaced(self, error: InviteError) -> None:
        self._log.warning("call.not_placed", why=error.detail, kind=error.kind)
        self.end(ended_reason_of_invite_error(error.kind))

    async def _finish_unplaced(self, reason: EndedReason) -> None:
        if not self._is_given_up:
            status = end_status_of(reason, answered=False)
            outcome = CallOutcome(status=status, reason=reason, ended_at=utc_now(), placed=False)
            await self._deps.finalizer.finish(self.call.id, outcome, self._agent)
        self._lifecycle.mark_ended()
