"""Calls that we make: they wait for their turn, are placed through their number's trunk and then live as any other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

import sqlalchemy as sa
import structlog

from calls import metrics
from calls.admission.model_load import ModelLoadShedder
from calls.call_record import sip_metadata
from calls.call_record.end_reason import end_status_of
from calls.call_record.outcome import CallOutcome
from calls.outbound import audit_log, permissions
from calls.outbound.dialer import OutboundDialer, trunk_problem
from calls.outbound.pacing import completes_before_end
from calls.outbound.permissions import DialClearance
from calls.session.call_session import CallSession
from calls.session.dependencies import CallDependencies
from calls.session.snapshot import CallSnapshot
from calls.session.transfer import ReroutePolicy, TransferSupport
from config.clock import utc_now
from sipcore.dialogs.leg import Leg
from sipcore.messages.headers import NameAddr
from sipcore.trunks.trunk import Trunk
from storage.calls import calls
from storage.calls.calls import Call, EndedReason, Queued
from storage.database.database import StorageTrouble
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.phone_numbers.trunk_rules import Policy

log = structlog.get_logger()


@dataclass(frozen=True)
class OutboundRoute(DialClearance):
    """What a call is dialled with, and through."""

    trunk: Trunk


def _depart(conn: sa.Connection, call: Call, policy: Policy) -> DialClearance | str:
    """The transaction before the INVITE: its Call-ID is stored, or why there is none."""
    cleared = permissions.recheck_dial(conn, call, policy)
    if isinstance(cleared, str):
        audit_log.log_attempt(audit_log.record_not_dialled(conn, call, cleared))
    else:
        calls.placed(conn, call.id, str(call.call_sid))
    return cleared


class OutboundCall:
    """`run` is the whole life of a queued call; `end` ends it from outside."""

    def __init__(
        self, queued: Queued, deps: CallDependencies, dialer: OutboundDialer, transfers: TransferSupport
    ) -> None:
        self.call: Call = queued.call
        self._agent = queued.agent
        self._number = queued.number
        self._deps = deps
        self._dialer = dialer
        self._transfers = transfers
        self._ending: asyncio.Future[EndedReason] = asyncio.get_running_loop().create_future()
        self._session: CallSession | None = None
        self._entered_load: ModelLoadShedder | None = None
        """Where it came in and is not counted yet."""
        self._log = log.bind(call_id=self.call.id)

    @property
    def has_leg(self) -> bool:
        """Its INVITE has been sent."""
        return self._session is not None

    def snapshot(self) -> CallSnapshot:
        """How it stands."""
        return CallSnapshot(self.call) if self._session is None else self._session.snapshot()

    def end(self, reason: EndedReason) -> None:
        """End the call; the first reason counts."""
        if self._session is not None:
            self._session.end(reason)
        elif not self._ending.done():
            self._ending.set_result(reason)

    async def run(self) -> None:
        """Wait for its turn, place it, live it, store its end. Whatever goes wrong ends this call as `error` and is
        logged once. Raises `StorageTrouble` when the end could not be stored."""
        try:
            live = await self._start_session()
        except Exception as error:  # noqa: BLE001 - it ends this call alone
            self._log.error("call.failed", error=repr(error), exc_info=error)
            live = None
            self.end("error")
        if live is not None:
            self._session = live
        if self._entered_load is not None:
            if live is None:
                self._entered_load.withdraw(queued=True)
            self._entered_load.entered()
        if live is None:
            await self._finish_unplaced(await self._ending)
            return
        if self._ending.done():  # while the INVITE was sent
            live.end(self._ending.result())
        await live.run()

    async def _start_session(self) -> CallSession | None:
        """The call on its leg; None when it has come to its end before."""
        problem = None if self._number is None else trunk_problem(self._number, tcp=self._dialer.tcp)
        if problem is not None:
            self._give_up(problem)
            return None
        line = await self._route()
        leg = None if line is None else await self._send_invite(line)
        if line is None or leg is None:
            return None
        return CallSession(self.call, line.agent, line.number, leg, self._deps, self._transfers)

    async def _wait_for_slot(self) -> bool:
        """Wait until the models keep up, and for a turn; False when the call is ended first."""
        load, turns = self._dialer.load_shedder, self._dialer.pacer
        if load is None:
            return await turns.wait_unless_ending(self._ending)
        return await completes_before_end(self._ending, load.wait_for_slot(turns.wait))

    def _try_enter_load(self) -> bool:
        """Beside the others; False when there is no room any more."""
        load = self._dialer.load_shedder
        if load is not None:
            if not load.try_enter():
                return False
            self._entered_load = load
        return True

    async def _route(self) -> OutboundRoute | None:
        """What the call is dialled with as everything stands at its turn: it was queued a while ago. None when it is
        not dialled, or ended before. It takes a place beside the others only when its trunk, which may have to be
        looked for, is there. A number that was changed meanwhile is asked for again."""
        while True:
            if not await self._wait_for_slot():
                return None
            number = await self._current_number()
            trunk, problem = (None, "") if number is None else await self._trunk(number)
            if self._try_enter_load():
                break
        self.call = replace(self.call, call_sid=str(uuid4()))
        while True:
            cleared = await self._clear()
            if isinstance(cleared, str):
                self._give_up(cleared)
                return None
            if cleared.number == number:
                break
            number = cleared.number
            trunk, problem = await self._trunk(number)
        self._agent = cleared.agent
        if trunk is None:
            self._give_up(problem)
            return None
        return OutboundRoute(cleared.number, cleared.agent, trunk)

    async def _current_number(self) -> PhoneNumber | None:
        asked = partial(
            phone_numbers.get, organization_id=self.call.organization_id, number_id=self.call.phone_number_id or ""
        )
        return await self._deps.database.read(asked, lane="calls")

    async def _trunk(self, number: PhoneNumber) -> tuple[Trunk | None, str]:
        """The number's trunk; None and why there is none."""
        try:
            return await self._dialer.trunk(number), ""
        except ConnectionError as error:
            return None, str(error)

    async def _clear(self) -> DialClearance | str:
        """What the call is dialled with, or why it is not, which is stored. Raises `StorageTrouble` when that can
        neither be stored nor read."""
        database, policy = self._deps.database, self._dialer.trunk_policy
        try:
            return await database.write(partial(_depart, call=self.call, policy=policy))
        except StorageTrouble as trouble:
            tell = self._log.debug if trouble.disk_full else self._log.warning  # a full disk is told once
            tell("call.progress_not_stored", cause=trouble.cause)
            return await database.read(partial(permissions.recheck_dial, call=self.call, policy=policy), lane="calls")

    async def _send_invite(self, line: OutboundRoute) -> Leg | None:
        """Send the INVITE; None when it cannot be sent."""
        number, trunk = line.number, line.trunk
        if self._ending.done():
            return None
        try:
            leg = await self._dialer.dial(
                self.call.customer_number,
                trunk=trunk,
                caller=NameAddr(number.number, number.name or ""),
                sip_call_id=self.call.call_sid,
                headers=sip_metadata.outbound_headers(self.call.metadata),
                follow=ReroutePolicy(self.call, number, self._deps.database, self._deps.aliases_of).allow_redirect,
            )
        except ConnectionError as error:
            self._give_up(str(error))
            return None
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

    def _give_up(self, why: str) -> None:
        self._log.warning("call.not_placed", why=why)
        self.end("unreachable")

    async def _finish_unplaced(self, reason: EndedReason) -> None:
        outcome = CallOutcome(status=end_status_of(reason, answered=False), reason=reason, ended_at=utc_now())
        await self._deps.finalizer.finish(self.call.id, outcome, self._agent)
