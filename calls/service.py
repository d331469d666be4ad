"""All calls of this process: inbound admission, the calls that are to be placed, the calls that live now, and how they
are brought to an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import sqlalchemy as sa
import structlog

from calls import metrics
from calls.admission.capacity import ConcurrencyLimits, TransferLegs
from calls.admission.digest_auth import AuthenticationRequired, InboundDigestAuth
from calls.admission.model_load import ModelLoadShedder
from calls.admission.number_routing import InboundRoute, SourceAliases, match_number, no_aliases, require_active_agent
from calls.admission.rejection import RETRY_AFTER_S, CallRejected
from calls.call_record import sip_metadata
from calls.outbound.dialer import OutboundDialer
from calls.session.call_session import CallSession
from calls.session.dependencies import CallDependencies
from calls.session.outbound_call import OutboundCall
from calls.session.snapshot import CallSnapshot
from calls.session.transfer import TransferSupport
from config.errors import TooMany, TrunklineError, Unavailable
from sipcore.dialogs.leg import InviteFacts, Leg
from storage.accounts.organizations import Organization
from storage.calls import calls
from storage.calls.calls import Call, EndedReason, OpenCalls
from storage.database.database import Database, StorageTrouble
from storage.phone_numbers.trunk_rules import Policy

MOST_ARRIVING: Final = 64
"""Callers at once that the database is asked about; others are told to come back, so that a database which does not
answer costs no more than that."""
ADMISSION_S: Final = 4.0
"""How long a caller waits for the database: its trunk may have another way to take."""
HANGUP_WAITS_S: Final = 2.0
"""How long whoever has a call hung up waits for its analysis."""

AdmissionCheck = Callable[[sa.Connection, str], None]
"""Takes an organization's id, in the transaction that stores its call. Raises `CallRejected`."""

log = structlog.get_logger()


class ActiveCall(Protocol):
    """A call between its storing and its stored end."""

    call: Call

    @property
    def has_leg(self) -> bool:
        """It has a leg."""

    def snapshot(self) -> CallSnapshot:
        """How it stands."""

    def end(self, reason: EndedReason) -> None:
        """End it; the first reason counts."""

    async def run(self) -> None:
        """Its whole life. Raises `StorageTrouble` when its end could not be stored."""


@dataclass
class _PendingInvite:
    """Somebody who waits to be admitted."""

    leg: Leg
    timed_out: bool = False
    """It took too long. Read on the database's thread as well."""


class CallService:
    """`incoming` takes a new inbound leg; the endpoint calls it on the event loop. `aliases_of` gives the names that a
    source address has in the database: itself and the registrars' host names that resolve to it. Without `dialer` no
    calls are placed. Who has to say who it is says so at the `door`. With `load`, callers are turned away while the
    models do not keep up. `check_caller` may refuse whom everything else admits. `trunk_policy` says whose
    sources count."""

    def __init__(
        self,
        database: Database,
        equipment: CallDependencies,
        ceilings: ConcurrencyLimits,
        names_of: SourceAliases = no_aliases,
        way_out: OutboundDialer | None = None,
        *,
        door: InboundDigestAuth,
        load: ModelLoadShedder | None = None,
        check_caller: AdmissionCheck = lambda *_: None,
        trunk_policy: Policy = "open",
    ) -> None:
        self._database = database
        self._equipment = equipment
        self._ceilings = ceilings
        self._names_of = names_of
        self._way_out = way_out
        self._second_legs = TransferLegs(self.check_room, self._room_changed)
        self._door = door
        self._load = load
        self._check_caller = check_caller
        self._trunk_policy = trunk_policy
        if load is not None:
            load.talking = self._talking
        self._draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._live: dict[str, tuple[ActiveCall, asyncio.Task[None]]] = {}
        self._lost: frozenset[str] = frozenset()
        """Calls that are over, but the database does not know it."""
        self._taking = asyncio.Lock()
        self._to_look = False
        self._arriving = 0
        self.on_capacity_changed: Callable[[], None] | None = None
        """The process has become full, or is so no more."""

    @property
    def live_calls(self) -> int:
        """Calls that have a place: those that wait to be placed, ring or talk."""
        return len(self._live)

    @property
    def is_full(self) -> bool:
        """The process has no place for one more call."""
        return len(self._live) + self._second_legs.total >= self._ceilings.process

    @property
    def _over(self) -> frozenset[str]:
        """Calls that are over, but the database does not know it, or not yet."""
        return self._lost | self._equipment.finalizer.unstored.ended

    @property
    def draining(self) -> bool:
        """No new calls are taken."""
        return self._draining

    def active_calls(self) -> list[ActiveCall]:
        """The calls that live now."""
        return [call for call, _ in self._live.values()]

    async def recover(self) -> int:
        """At start-up, before calls are taken: close the calls that a dead process left open. Returns how many."""
        closed = await self._equipment.finalizer.recover(self._equipment.data_dir)
        if closed:
            log.warning("calls.recovered", closed=closed)
        return closed

    def incoming(self, leg: Leg) -> None:
        """Take a new inbound leg, or refuse it; returns at once."""
        self._start(self._incoming(leg))

    def check_room(self, conn: sa.Connection, organization: Organization) -> None:
        """Whether there is a place for one more outbound call. For the transaction that stores it, on the database's
        thread. `TooMany` when the organization's places are taken, `Unavailable` when the process's are, or when it
        drains."""
        if self._draining:
            raise Unavailable("The server is shutting down", RETRY_AFTER_S)
        match self._ceilings.exceeded(conn, organization.id, organization.max_calls, self._over, self._second_legs):
            case "organization":
                raise TooMany("Too many concurrent calls. Please try again later.")
            case "process":
                raise Unavailable("The server is full", RETRY_AFTER_S)

    def start_queued_calls(self) -> None:
        """Calls may have been stored that are to be placed; returns at once."""
        if not self._to_look:
            self._to_look = True
            self._start(self._look())

    async def hangup(self, call_id: str) -> bool:
        """End a live call as `api_hangup` and wait until its end is stored, or kept at least. False when it is not live
        here."""
        if call_id not in self._live:
            await self._take_queued()
        if call_id not in self._live:
            return False
        call, task = self._live[call_id]
        call.end("api_hangup")
        await asyncio.wait((task,))
        await self._equipment.finalizer.closed(call_id, HANGUP_WAITS_S)
        return True

    async def drain(self, timeout_s: float) -> None:
        """Take and place no new calls and wait for those that live; after `timeout_s` they end as `server_shutdown`, as
        those that wait to be placed do at once. Returns when the end of every call is stored."""
        self._draining = True
        until_s = time.monotonic() + timeout_s
        await self._look()
        for call, _ in list(self._live.values()):
            if not call.has_leg:
                call.end("server_shutdown")
        if self._tasks:
            log.info("calls.draining", live=self.live_calls, timeout_s=timeout_s)
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        self.end_all("server_shutdown")
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        await self._equipment.finalizer.drain(until_s - time.monotonic())

    def end_all(self, reason: EndedReason = "server_shutdown") -> None:
        """End every call now, and take no new ones."""
        self._draining = True
        for call, _ in list(self._live.values()):
            call.end(reason)

    def stop_now(self) -> None:
        """End every call now, and wait for no model to analyse them."""
        self.end_all("server_shutdown")
        self._equipment.finalizer.skip_model_analysis()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that belongs to no request: its log lines do not carry the id of the one that happened to begin it."""
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _look(self) -> None:
        self._to_look = False
        try:
            await self._take_queued()
        except StorageTrouble as trouble:
            log.error("calls.queue_not_read", cause=trouble.cause)

    async def _take_queued(self) -> None:
        """Begin the life of every call that was queued. One look after the other: a call that has come to its end after
        its row was read cannot be begun again."""
        way_out = self._way_out
        if way_out is None:
            return
        async with self._taking:
            known = self._over.union(self._live)
            for queued in await self._database.read(lambda conn: calls.queued(conn, known), lane="calls"):
                call = OutboundCall(
                    queued, self._equipment, way_out, TransferSupport(way_out.dial_transfer, self._second_legs)
                )
                self._begin(call, self._start(self._serve(call)))
                log.info("call.queued", call_id=call.call.id, agent=call.call.agent_id)

    async def _incoming(self, leg: Leg) -> None:
        """A leg's whole life. Nothing that goes wrong with it reaches another one."""
        facts = leg.facts
        event = log.bind(source=facts.source, dialled=facts.request_user, sip_call_id=facts.sip_call_id)
        try:
            call = await self._admit(leg)
            if call is not None:
                await self._serve(call)
        except AuthenticationRequired as question:
            event.debug("call.challenged")
            await self._reject(leg, question)
        except CallRejected as refusal:
            event.info("call.refused", code=refusal.code, why=refusal.message)
            await self._refuse(leg, refusal)
        except Unavailable as trouble:
            event.error("call.refused", code=503, why=str(trouble))
            await self._refuse(leg, CallRejected(503, trouble.message, trouble.retry_after_s))
        except Exception as error:  # noqa: BLE001 - it ends this leg alone
            event.error("call.refused", code=500, why=repr(error), exc_info=error)
            await self._refuse(leg, CallRejected(500, "a fault"))

    async def _refuse(self, leg: Leg, refusal: CallRejected) -> None:
        metrics.REFUSED_CALLS.labels(sip_status=refusal.code).inc()
        await self._reject(leg, refusal)

    async def _reject(self, leg: Leg, refusal: CallRejected) -> None:
        if leg.ended.done():
            return
        try:
            await leg.reject(refusal.code, refusal.retry_after_s, refusal.headers)
        except Exception as error:  # noqa: BLE001 - the leg may have ended meanwhile
            log.warning("call.refusal_failed", sip_call_id=leg.facts.sip_call_id, error=repr(error))

    async def _admit(self, leg: Leg) -> CallSession | None:
        """The call of a leg, once it is among the living; None when its caller was told meanwhile that there is none.
        Raises `CallRejected`, `AuthenticationRequired`, and whatever goes wrong."""
        if self._arriving >= MOST_ARRIVING:
            raise CallRejected(503, "too many callers wait for the database", RETRY_AFTER_S)
        caller = _PendingInvite(leg)
        self._arriving += 1
        try:
            admitting = asyncio.ensure_future(self._admitted(caller))
            await asyncio.wait((admitting,), timeout=ADMISSION_S)
            if not admitting.done():
                caller.timed_out = True
                late = CallRejected(503, "the database does not answer", RETRY_AFTER_S)
                log.error("call.refused", code=late.code, why=late.message, sip_call_id=leg.sip_call_id)
                await self._refuse(leg, late)
            return await self._outcome(admitting, caller)
        finally:
            self._arriving -= 1

    async def _outcome(self, admitting: asyncio.Future[CallSession], caller: _PendingInvite) -> CallSession | None:
        """The call, when it was admitted. One that was stored too late is ended: nobody waits for it."""
        try:
            call = await admitting
        except TrunklineError:
            if caller.timed_out:
                return None
            raise
        if caller.timed_out:
            call.end("error")
        task = asyncio.current_task()
        assert task is not None
        self._begin(call, task)
        return call

    async def _admitted(self, caller: _PendingInvite) -> CallSession:
        facts, names = caller.leg.facts, self._names_of(caller.leg.facts.source)
        target = await self._database.read(
            lambda conn: match_number(conn, facts, names, self._trunk_policy), lane="calls"
        )
        self._door.authenticate(facts, target.number)
        who = require_active_agent(target)
        if self._draining:
            raise CallRejected(503, "the server is draining", RETRY_AFTER_S)
        if self._load is None:
            return await self._create(caller, who)
        if (why := self._load.enter()) is not None:
            raise CallRejected(503, why, RETRY_AFTER_S)
        try:
            return await self._create(caller, who)
        except BaseException:
            self._load.gave_back()
            raise
        finally:
            self._load.is_in()

    async def _create(self, caller: _PendingInvite, admitted: InboundRoute) -> CallSession:
        facts = caller.leg.facts
        try:
            call = await self._database.write(lambda conn: self._store_inbound(conn, caller, admitted))
        except StorageTrouble as trouble:
            if not trouble.disk_full:
                raise
            call = await self._unstored(caller, admitted)
        log.info(
            "call.incoming",
            call_id=call.id,
            source=facts.source,
            number=admitted.number.number,
            customer=call.customer_number,
            agent=admitted.agent.id,
        )
        transfers = TransferSupport(self._way_out.dial_transfer, self._second_legs) if self._way_out else None
        return CallSession(call, admitted.agent, admitted.number, caller.leg, self._equipment, transfers)

    def _store_inbound(self, conn: sa.Connection, caller: _PendingInvite, admitted: InboundRoute) -> Call:
        """`CallRejected`: 486 when the organization's places are taken, 503 when the process's are, or when the caller
        does not wait any more."""
        owner = admitted.number.organization_id
        if caller.timed_out:
            raise CallRejected(503, "the caller was told so")
        self._check_caller(conn, owner)
        _refuse_full(self._ceilings.exceeded(conn, owner, admitted.max_calls, self._over, self._second_legs))
        call = _inbound(caller.leg.facts, admitted)
        calls.insert(conn, call)
        return call

    async def _unstored(self, caller: _PendingInvite, admitted: InboundRoute) -> Call:
        """A call that begins without a row, because the disk is full: admitted by the same rules, it is stored when
        there is room. Raises `CallRejected`, `StorageTrouble`, and `Unavailable` when too many calls wait for room."""
        owner = admitted.number.organization_id
        await self._database.read(lambda conn: self._check_caller(conn, owner), lane="calls")
        if caller.timed_out:
            raise CallRejected(503, "the caller was told so")
        unstored = self._equipment.finalizer.unstored
        owners = {**unstored.open_rows(), **{call.call.id: call.call.organization_id for call in self.active_calls()}}
        there = OpenCalls(sum(each == owner for each in owners.values()), len(owners))
        _refuse_full(self._ceilings.exceeded_with(there, owner, admitted.max_calls, self._second_legs))
        call = _inbound(caller.leg.facts, admitted)
        unstored.keep(call)
        return call

    def on_disk_space(self) -> None:
        """The disk has room: what there was none for is stored from now on; returns at once."""
        self._equipment.finalizer.room_again()
        self._start(self._store_live())

    async def _store_live(self) -> None:
        for living in self.active_calls():
            now = living.snapshot()
            try:
                await self._equipment.finalizer.store_live(living.call, now.answered_at)
            except TrunklineError as trouble:
                log.debug("call.progress_not_stored", call_id=living.call.id, cause=str(trouble))

    def _begin(self, call: ActiveCall, task: asyncio.Task[None]) -> None:
        """The call lives from now on."""
        self._live[call.call.id] = call, task
        self._room_changed()

    def _talking(self) -> int:
        """Calls that have a leg."""
        return sum(call.has_leg for call, _ in self._live.values())

    def _room_changed(self) -> None:
        if self.on_capacity_changed is not None:
            self.on_capacity_changed()

    async def _serve(self, call: ActiveCall) -> None:
        """The life of a call that is among the living."""
        call_id = call.call.id
        if self._draining:
            call.end("server_shutdown")
        metrics.LIVE_CALLS.inc()
        try:
            await call.run()
        except Exception as error:  # noqa: BLE001 - the end could not be stored: that concerns this call alone
            self._lost |= {call_id}
            log.error("call.end_lost", call_id=call_id, error=repr(error), remedy="closed at the next start")
        finally:
            del self._live[call_id]
            self._room_changed()
            metrics.LIVE_CALLS.dec()


def _refuse_full(full: Literal["organization", "process"] | None) -> None:
    """Raises `CallRejected` when somebody has no place left."""
    match full:
        case "organization":
            raise CallRejected(486, "the organization has too many calls")
        case "process":
            raise CallRejected(503, "the server is full", RETRY_AFTER_S)


def _inbound(facts: InviteFacts, admitted: InboundRoute) -> Call:
    """The call of a leg, as it arrives."""
    number = admitted.number
    return calls.new_inbound(
        organization_id=number.organization_id,
        agent_id=admitted.agent.id,
        phone_number_id=number.id,
        provider=number.provider,
        call_sid=facts.sip_call_id,
        customer_number=sip_metadata.remote_number(facts),
        metadata=sip_metadata.headers_to_metadata(facts),
    )
