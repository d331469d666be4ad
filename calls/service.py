"""The calls of this process: admission of inbound INVITEs, queued outbound calls, active calls, drain and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal, Protocol

import sqlalchemy as sa
import structlog

from calls import metrics
from calls.admission.admission_reads import AdmissionReads
from calls.admission.codec_limit import limit_codecs
from calls.admission.concurrency_limits import ConcurrencyLimits, ReferredLegs
from calls.admission.digest_auth import AuthenticationRequired, InboundDigestAuth
from calls.admission.load_shedding import ModelLoadShedder
from calls.admission.number_routing import InboundRoute, match_number, require_active_agent
from calls.admission.refused_invites import RefusalRecorder, RefusedInvites
from calls.admission.rejection import RETRY_AFTER_S, CallRejected
from calls.call_record import sip_metadata
from calls.call_record.outcome import CallOutcome
from calls.live.capacity import CallCapacity
from calls.outbound.dialer import OutboundDialer
from calls.post_call.journal_records import CallStart
from calls.session.call_listener import CallListener
from calls.session.call_session import CallSession
from calls.session.call_snapshot import CallSnapshot
from calls.session.dependencies import CallDependencies
from calls.session.outbound_call import OutboundCall
from calls.session.peer_reroute import ReferSupport
from calls.session.transfer.call_transfers import TransferDependencies
from calls.session.transfer.child_call import ChildCall, UnplacedChildCall
from calls.webhooks import call_events
from config.clock import utc_now
from config.errors import Conflict, LimitExceeded, TrunklineError, Unavailable
from sipcore.audio.pump import Pump
from sipcore.dialogs.call_leg import CallLeg
from sipcore.dialogs.leg import InviteFacts, Leg
from storage.accounts import organizations
from storage.accounts.organizations import Organization
from storage.calls import calls, queued_calls
from storage.calls.calls import Call, EndedReason, OpenCallCounts
from storage.calls.queued_calls import QueuedCall
from storage.calls.transfers import Transfer, TransferOrder
from storage.database import own_node
from storage.database.database import call_lock
from storage.database.errors import StorageUnavailable
from storage.nodes import nodes
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy

MAX_PENDING_INVITES: Final = 64
"""INVITEs that wait for the database at once; further ones get 503 with Retry-After, so that a database that does not
respond ties up no more of them."""
ADMISSION_TIMEOUT_S: Final = 4.0
"""Time to admit an INVITE; afterwards it gets 503, because its trunk may have another route."""
ACQUIRED_AT_ONCE: Final = 20
"""Queued calls that a node takes in one transaction, so that several nodes share those of one that is gone."""
ENDED_AT_ONCE: Final = 1000
"""Queued calls without a node that the last node ends when it drains."""
HANGUP_ANALYSIS_WAIT_S: Final = 2.0
"""Time that `hangup` waits for the analysis of the call."""

STORE_ROWS_EVERY_S: Final = 2.0
"""Interval at which active calls without a row are stored while the database can be reached."""
REPLAY_EVERY_S: Final = 60.0
"""Interval of looks at the call journal."""
SWEEP_AFTER_S: Final = 30.0
"""Time from the end of an outage until rows without a session are looked for, and their least age, because a row is
stored before its session begins."""

AdmissionCheck = Callable[[sa.Connection, str], None]
"""Called with an organization's id in the transaction that stores its call. Raises `CallRejected`."""

log = structlog.get_logger()


class ActiveCall(Protocol):
    """A call between the storing of its row and its stored end."""

    call: Call

    @property
    def has_leg(self) -> bool:
        """True once the call has a SIP leg."""

    def snapshot(self) -> CallSnapshot:
        """The state of the call at this moment."""

    def end(self, reason: EndedReason) -> None:
        """End the call; the first reason counts."""

    async def transfer(self, order: TransferOrder) -> Transfer:
        """Start a transfer that a client asks for; returns it as stored."""

    def whisper(self, text: str, author: str) -> None:
        """Give the agent a note. Raises `Conflict` if the call is not in progress with the agent."""

    def check_takeover(self) -> None:
        """Raises `Conflict` if the call is not in progress with the agent."""

    def take_over(self, leg: CallLeg, name: str) -> asyncio.Future[EndedReason]:
        """Connect a person with the caller in the agent's place."""

    def listen(self) -> CallListener:
        """Listen in. Raises `Conflict` if the call is not in progress."""

    def set_held(self, on: bool) -> None:
        """Put the other side on hold, or resume the call."""

    async def run(self) -> None:
        """Run the call until its end is stored. Raises `StorageUnavailable` if that fails."""


@dataclass
class _PendingInvite:
    """An inbound leg that is being admitted."""

    leg: Leg
    number: PhoneNumber | None = None
    """The number that it is for, once that is known."""
    timed_out: bool = False
    """True once it was rejected after `ADMISSION_TIMEOUT_S`. Also read on the database's thread."""


class CallService:
    """The endpoint calls `on_incoming_call` for each new inbound leg, on the event loop. Without `dialer` no call is
    placed. `digest_auth` challenges INVITEs to numbers with `sip_inbound_auth`. With `load_shedder`, INVITEs get 503
    while the models cannot answer in time. `check_admission` may reject a call that all other rules admit.
    `trunk_policy` decides which organizations' source addresses count. Without `pump` agents cannot transfer calls;
    `refer_timeout_s`: time until the final status of a REFER. `inbound_codecs` returns the codecs that calls to a
    number are limited to, preferred first; (): they may have all. `node_share` returns how many of so many calls of an
    organization this node may have while the database is away, which counts them on all nodes."""

    def __init__(
        self,
        deps: CallDependencies,
        limits: ConcurrencyLimits,
        *,
        dialer: OutboundDialer | None = None,
        digest_auth: InboundDigestAuth,
        load_shedder: ModelLoadShedder | None = None,
        check_admission: AdmissionCheck = lambda *_: None,
        trunk_policy: TrunkPolicy = "open",
        pump: Pump | None = None,
        refer_timeout_s: float = 30.0,
        inbound_codecs: Callable[[PhoneNumber], Sequence[str]] = lambda _: (),
        node_share: Callable[[int], int] = lambda limit: limit,
    ) -> None:
        self._pump = pump
        self._refer_timeout_s = refer_timeout_s
        self._deps = deps
        self._database = deps.database
        self._limits = limits
        self._dialer = dialer
        self._referred_legs = ReferredLegs(self.check_capacity, self._capacity_changed)
        self._digest_auth = digest_auth
        self._load_shedder = load_shedder
        self._check_admission = check_admission
        self._trunk_policy = trunk_policy
        self._inbound_codecs = inbound_codecs
        self._node_share = node_share
        self._admission_reads = deps.admission_reads or AdmissionReads(deps.database)
        if load_shedder is not None:
            load_shedder.active_calls = self._calls_with_leg
        self._draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._active: dict[str, tuple[ActiveCall, asyncio.Task[None]]] = {}
        self._lost_ends: frozenset[str] = frozenset()
        """Ids of calls that have ended, but are open in the database until the next start."""
        self._child_calls: dict[str, ChildCall | UnplacedChildCall] = {}
        """The second legs of transfers, by the id of their call; `_active` has the callers' calls."""
        self._queue_lock = asyncio.Lock()
        self._rows_lock = asyncio.Lock()
        """Held while rows of active calls are stored, so that none is stored twice at once."""
        self._queue_check_scheduled = False
        self._read_change_number: int | None = None
        """Of the database, when the queued calls were read last."""
        self._pending_invites = 0
        self.refused_invites: Final = RefusedInvites()
        self._refusals = RefusalRecorder(self.refused_invites, deps.database, deps.aliases_of, self._spawn)
        self.on_capacity_changed: Callable[[], None] | None = None
        """Called after a call or a transfer leg was added or removed: `is_full` may have changed."""

    @property
    def active_call_count(self) -> int:
        """Calls that count against the limits: queued here, ringing or answered."""
        return sum(not call.call.is_chat for call, _ in self._active.values())

    @property
    def is_full(self) -> bool:
        """True if the process has reached its limit of concurrent calls."""
        return self.active_call_count + self._referred_legs.total >= self._limits.process

    @property
    def _ended_but_open(self) -> frozenset[str]:
        """Ids of calls that have ended, but are still open in the database."""
        return self._lost_ends | self._deps.finalizer.outage_buffer.ended_calls

    @property
    def is_draining(self) -> bool:
        """True once no new calls are admitted or placed."""
        return self._draining

    def active_calls(self) -> list[ActiveCall]:
        """The calls that are active now."""
        return [call for call, _ in self._active.values()]

    async def recover(self, nodes: Collection[str] | None = None) -> int:
        """Close the calls that dead nodes left open, by default those of all; returns their number. For start-up,
        before calls are admitted, and for the nodes that are found to be down."""
        closed = await self._deps.finalizer.recover(self._deps.data_dir, nodes)
        if closed:
            log.warning("calls.recovered", closed=closed)
        return closed

    def on_incoming_call(self, leg: Leg) -> None:
        """Admit a new inbound leg and run its call, or reject it; returns at once."""
        self._spawn(self._handle_invite(leg))

    def check_capacity(self, conn: sa.Connection, organization: Organization) -> None:
        """Check that there is a place for one more outbound call or transfer leg. For the transaction that stores it,
        on the database's thread. Raises `LimitExceeded` when the organization's limit is reached, `Unavailable` when
        the process's is, or while it drains."""
        if self._draining:
            raise Unavailable("The server is shutting down", RETRY_AFTER_S)
        match self._limits.exceeded_limit(
            conn, organization.id, organization.max_calls, self._ended_but_open, self._referred_legs
        ):
            case "organization":
                raise LimitExceeded("Too many concurrent calls. Please try again later.")
            case "process":
                raise Unavailable("The server is full", RETRY_AFTER_S)

    def capacity(self, conn: sa.Connection, organization_id: str, left_on_other_nodes: int = 0) -> CallCapacity:
        """Returns the numbers of an organization's calls. On the database's thread."""
        organization = organizations.get(conn, organization_id)
        open_calls = calls.count_open(conn, organization_id, self._ended_but_open)
        own = open_calls.organization + self._referred_legs.count_of(organization_id)
        limit = self._limits.organization
        if organization is not None and organization.max_calls is not None:
            limit = organization.max_calls
        left_in_all = self._limits.process - open_calls.total - self._referred_legs.total
        return CallCapacity(own, limit, max(0, min(limit - own, max(0, left_in_all) + left_on_other_nodes)))

    def start(self, call: ActiveCall) -> None:
        """Run a call that was stored, in a task of its own; returns at once."""
        self._register(call, self._spawn(self._run_call(call)))

    def start_queued_calls(self) -> None:
        """Start the queued outbound calls that were stored; returns at once."""
        if not self._queue_check_scheduled:
            self._queue_check_scheduled = True
            self._spawn(self._start_queued())

    def start_calls_queued_meanwhile(self) -> None:
        """Start the queued calls if anything was stored since they were read last; returns at once."""
        change_number = self._database.change_number()
        if change_number is None or change_number != self._read_change_number:
            self.start_queued_calls()

    async def hangup(self, call_id: str) -> bool:
        """End an active call as `api_hangup` and wait until its end is stored, or is buffered until it can be. Returns
        False if the call is not active in this process."""
        if call_id not in self._active:
            await self._run_queued(call_id)
        if (child := self._child_calls.get(call_id)) is not None:
            child.lifecycle.end("api_hangup")
            await asyncio.wait((child.end_stored,))
            await self._deps.finalizer.wait_closed(call_id, HANGUP_ANALYSIS_WAIT_S)
            return True
        if call_id not in self._active:
            return False
        call, task = self._active[call_id]
        call.end("api_hangup")
        await asyncio.wait((task,))
        await self._deps.finalizer.wait_closed(call_id, HANGUP_ANALYSIS_WAIT_S)
        return True

    async def transfer(self, call_id: str, order: TransferOrder) -> Transfer:
        """Start a transfer of an active call; returns it as stored. Raises `Conflict` if the call is not in progress in
        this process, `Invalid` for an unknown target, and the errors of outbound calls."""
        if call_id not in self._active:
            raise Conflict("The call is not in progress")
        return await self._active[call_id][0].transfer(order)

    def whisper(self, call_id: str, text: str, author: str) -> None:
        """Give the agent of an active call a note, which the caller does not hear. Raises `Conflict` if the agent does
        not talk with a caller in this call, in this process."""
        self._with_agent(call_id).whisper(text, author)

    def check_takeover(self, call_id: str) -> None:
        """Raises `Conflict` if no agent talks with a caller in this call, in this process."""
        self._with_agent(call_id).check_takeover()

    def take_over(self, call_id: str, leg: CallLeg, name: str) -> asyncio.Future[EndedReason]:
        """Connect a person of this name, who has come on this leg, with the caller in the agent's place. Returns what
        is done once the call is to end. Raises `Conflict`."""
        return self._with_agent(call_id).take_over(leg, name)

    def _with_agent(self, call_id: str) -> ActiveCall:
        if call_id not in self._active:
            raise Conflict("The call is not in progress with the agent")
        return self._active[call_id][0]

    def listen(self, call_id: str) -> CallListener:
        """Listen in to an active call, or to the second leg of a transfer. Raises `Conflict` if it is not in progress
        in this process."""
        if (child := self._child_calls.get(call_id)) is not None:
            return child.listen()
        if call_id in self._active:
            return self._active[call_id][0].listen()
        raise Conflict("The call is not in progress")

    async def set_held(self, call_id: str, on: bool) -> None:
        """Put the other side of an active call, or of the second leg of a transfer, on hold, or resume the call.
        Idempotent. Raises `Conflict` if the call is not in progress in this process."""
        if (child := self._child_calls.get(call_id)) is not None:
            child.set_held(on)
        elif call_id in self._active:
            self._active[call_id][0].set_held(on)
        else:
            raise Conflict("The call is not in progress")

    async def drain(self, timeout_s: float) -> None:
        """Admit and place no new calls and wait for the active ones; after `timeout_s` they end as `server_shutdown`.
        Queued calls are given to another node that is up; other calls without a leg end at once. Returns when the end
        of every call is stored."""
        self._draining = True
        until_s = time.monotonic() + timeout_s
        await self._give_queue_back()
        await self._start_queued()
        for call, _ in list(self._active.values()):
            if not call.has_leg:
                call.end("server_shutdown")
        if self._tasks:
            log.info("calls.draining", live=self.active_call_count, timeout_s=timeout_s)
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        self.end_all("server_shutdown")
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        await self._deps.finalizer.drain(until_s - time.monotonic())

    def end_all(self, reason: EndedReason = "server_shutdown") -> None:
        """End every call now, and admit no new ones."""
        self._draining = True
        for call, _ in list(self._active.values()):
            call.end(reason)

    def end_all_without_analysis(self) -> None:
        """End every call now; no analysis waits for a model."""
        self.end_all("server_shutdown")
        self._deps.finalizer.skip_model_analysis()

    def on_outage_over(self) -> None:
        """Store what an outage of the database, or a full disk, kept from being stored; returns at once."""
        self._deps.finalizer.on_outage_over()
        self._spawn(self._store_active_calls(self.active_calls()))
        self._spawn(self._replay_journal())
        asyncio.get_running_loop().call_later(SWEEP_AFTER_S, self._start_closing_rows)

    def _start_closing_rows(self) -> None:
        if not self._draining:
            self._spawn(self._close_rows_without_session())

    async def _close_rows_without_session(self) -> None:
        """End the calls of this node that are open in the database and not here: INVITEs that were refused because the
        outcome of the commit was unknown."""
        latest = utc_now() - timedelta(seconds=SWEEP_AFTER_S)
        try:
            for call in await self._database.read(partial(calls.open_of_node, created_before=latest)):
                buffer = self._deps.finalizer.outage_buffer
                known = self._ended_but_open.union(self._active, self._child_calls)
                if call.id in known or buffer.knows(call.id) or self._deps.finalizer.is_closing(call.id):
                    continue
                log.warning("call.without_session", call_id=call.id, created_at=str(call.created_at))
                call_lock.set(call.organization_id)
                outcome = CallOutcome(status="failed", reason="error", ended_at=utc_now())
                await self._deps.finalizer.finish(call.id, outcome, None)
        except StorageUnavailable as error:
            log.debug("calls.rows_not_read", cause=error.cause)

    async def replay_journal(self) -> None:
        """Store what the journal has of a former process. For start-up, before `recover`."""
        await self._deps.finalizer.replay_journal(at_start=True)

    async def replay_journal_periodically(self) -> None:
        """Store what the journal has and no call in memory, until cancelled: ends that the database refused for another
        reason than an outage."""
        while True:
            await asyncio.sleep(REPLAY_EVERY_S)
            await self._replay_journal()

    async def store_rows_periodically(self) -> None:
        """Store the active calls that have no row, until cancelled. The end of an outage finds most of them, but not
        one that is admitted just then, nor one whose transaction timed out without an outage."""
        while True:
            await asyncio.sleep(STORE_ROWS_EVERY_S)
            buffer = self._deps.finalizer.outage_buffer
            without_row = [each for each in self.active_calls() if buffer.row(each.call.id) is not None]
            if self._database.away_since_s is None:
                await self._store_active_calls(without_row)

    async def _replay_journal(self) -> None:
        try:
            await self._deps.finalizer.replay_journal()
        except StorageUnavailable as error:
            log.warning("call_journal.not_replayed", cause=error.cause)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Returns a task in an empty context: its log lines do not carry the id of the request that started it."""
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _start_queued(self) -> None:
        self._queue_check_scheduled = False
        try:
            await self._run_queued()
        except StorageUnavailable as error:
            log.error("calls.queue_not_read", cause=error.cause)

    async def _run_queued(self, wanted: str | None = None) -> None:
        """Run every queued call in a task of its own. Readers take turns, so that a call that ended after its row was
        read is not started again. Calls that other nodes have given back are acquired, as far as there are places; the
        one that is `wanted` also without."""
        dialer = self._dialer
        if dialer is None:
            return
        async with self._queue_lock:
            has_free = await self._run_waiting(dialer)
            if has_free and wanted is not None:
                acquire = partial(queued_calls.acquire, limit=1, only=wanted)
                if await self._database.write(acquire, lock=queued_calls.LOCK):
                    await self._run_waiting(dialer)
                return
            while has_free:
                room = min(self._limits.process - self.active_call_count, ACQUIRED_AT_ONCE)
                if self._draining or room <= 0:
                    return
                acquired = await self._database.write(partial(_acquire_queued, limit=room), lock=queued_calls.LOCK)
                if not acquired:  # other nodes have taken them, or take this one for down
                    return
                log.info("calls.queue_acquired", calls=acquired)
                has_free = await self._run_waiting(dialer)

    async def _run_waiting(self, dialer: OutboundDialer) -> bool:
        """Run this node's queued calls that do not run yet. Returns True if there are some without a node."""
        change_number = self._database.change_number()  # before the read: what is stored after it counts
        known = self._ended_but_open.union(self._active)

        def read(conn: sa.Connection) -> tuple[list[QueuedCall], bool]:
            return queued_calls.waiting(conn, known), queued_calls.has_free(conn)

        waiting, has_free = await self._database.read(read, priority="calls")
        for queued in waiting:
            call = OutboundCall(queued, self._deps, dialer, self._refer_support(dialer), self.transfer_dependencies)
            self._register(call, self._spawn(self._run_call(call)))
            log.info("call.queued", call_id=call.call.id, agent=call.call.agent_id)
        self._read_change_number = change_number
        return has_free

    async def _give_queue_back(self) -> None:
        """Give the queued calls that are not dialled to the other nodes, if one of them is up and takes them;
        otherwise acquire those that have no node, to end them."""
        if self._database.is_sqlite:
            return
        try:
            given_back = await self._database.write(_give_back_own, lock=queued_calls.LOCK)
        except StorageUnavailable as error:
            log.error("calls.queue_not_given_back", cause=error.cause)
            return
        for call, _ in list(self._active.values()):
            if call.call.id in given_back and isinstance(call, OutboundCall):
                call.give_up()
        if given_back:
            log.info("calls.queue_given_back", calls=len(given_back), nodes=[self._database.node])

    async def _handle_invite(self, leg: Leg) -> None:
        """Admit an inbound leg and run its call, or reject it. An error ends this leg alone."""
        facts = leg.facts
        event = log.bind(source=facts.source, dialled=facts.request_user, sip_call_id=facts.sip_call_id)
        try:
            call = await self._admit(leg)
            if call is not None:
                await self._run_call(call)
        except AuthenticationRequired as challenge:
            event.debug("call.challenged")
            await self._reject(leg, challenge)
        except CallRejected as rejection:
            event.info("call.refused", code=rejection.code, why=rejection.message)
            await self._count_and_reject(leg, rejection)
        except Unavailable as error:
            event.error("call.refused", code=503, why=str(error))
            await self._count_and_reject(leg, CallRejected(503, error.message, error.retry_after_s))
        except Exception as error:  # noqa: BLE001 - it ends this leg alone
            event.error("call.refused", code=500, why=repr(error), exc_info=error)
            await self._count_and_reject(leg, CallRejected(500, "a fault"))

    async def _count_and_reject(self, leg: Leg, rejection: CallRejected) -> None:
        metrics.REFUSED_CALLS.labels(sip_status=rejection.code).inc()
        await self._reject(leg, rejection)

    async def _reject(self, leg: Leg, rejection: CallRejected) -> None:
        if leg.ended.done():
            return
        try:
            await leg.reject(rejection.code, rejection.retry_after_s, rejection.headers)
        except Exception as error:  # noqa: BLE001 - the leg may have ended meanwhile
            log.warning("call.refusal_failed", sip_call_id=leg.facts.sip_call_id, error=repr(error))

    async def _admit(self, leg: Leg) -> CallSession | None:
        """Returns the session of an inbound leg, which is active from now on; None if the INVITE was rejected meanwhile
        because the database did not respond in time. Raises `CallRejected`, `AuthenticationRequired`, and other
        errors."""
        if self._pending_invites >= MAX_PENDING_INVITES:
            raise CallRejected(503, "too many callers wait for the database", RETRY_AFTER_S)
        invite = _PendingInvite(leg)
        self._pending_invites += 1
        try:
            admitting = asyncio.ensure_future(self._route_and_create(invite))
            await asyncio.wait((admitting,), timeout=ADMISSION_TIMEOUT_S)
            if not admitting.done():
                invite.timed_out = True
                late = CallRejected(503, "the database does not answer", RETRY_AFTER_S)
                log.error("call.refused", code=late.code, why=late.message, sip_call_id=leg.sip_call_id)
                await self._count_and_reject(leg, late)
            return await self._register_admitted(admitting, invite)
        finally:
            self._pending_invites -= 1

    async def _register_admitted(
        self, admitting: asyncio.Future[CallSession], invite: _PendingInvite
    ) -> CallSession | None:
        """Returns the session if the INVITE was admitted. One that was stored after the timeout is ended at once."""
        try:
            session = await admitting
        except TrunklineError:
            if invite.timed_out:
                return None
            raise
        if invite.timed_out:
            session.end("error")
        task = asyncio.current_task()
        assert task is not None
        self._register(session, task)
        return session

    async def _route_and_create(self, invite: _PendingInvite) -> CallSession:
        try:
            return await self._route_to_session(invite)
        except AuthenticationRequired:
            raise
        except CallRejected as rejection:
            self._refusals.add(invite.leg.facts, invite.number, rejection.code, rejection.message)
            raise
        except TrunklineError:
            self._refusals.add(invite.leg.facts, invite.number, 503, "the database does not answer")
            raise

    async def _route_to_session(self, invite: _PendingInvite) -> CallSession:
        facts, aliases = invite.leg.facts, self._deps.aliases_of(invite.leg.facts.source)
        target = await self._admission_reads.read(
            lambda conn: match_number(conn, facts, aliases, self._trunk_policy), priority="calls"
        )
        invite.number = target.number
        self._digest_auth.authenticate(facts, target.number)
        route = require_active_agent(target)
        if self._draining:
            raise CallRejected(503, "the server is draining", RETRY_AFTER_S)
        await limit_codecs(invite.leg, self._inbound_codecs(route.number))
        if self._load_shedder is None:
            return await self._create_session(invite, route)
        if (why := self._load_shedder.admit_inbound()) is not None:
            raise CallRejected(503, why, RETRY_AFTER_S)
        try:
            return await self._create_session(invite, route)
        except BaseException:
            self._load_shedder.undo_admission()
            raise
        finally:
            self._load_shedder.end_admission()

    async def _create_session(self, invite: _PendingInvite, route: InboundRoute) -> CallSession:
        facts = invite.leg.facts
        invite.leg.trunk_key = route.number.id
        call = await self._create_call(invite, route)
        log.info(
            "call.incoming",
            call_id=call.id,
            source=facts.source,
            number=route.number.number,
            customer=call.customer_number,
            agent=route.agent.id,
        )
        transfers = None if self._dialer is None else self._refer_support(self._dialer)
        return CallSession(
            call=call,
            agent=route.agent,
            number=route.number,
            leg=invite.leg,
            deps=self._deps,
            transfers=transfers,
            transfer_dependencies=self.transfer_dependencies,
        )

    async def _create_call(self, invite: _PendingInvite, route: InboundRoute) -> Call:
        """Returns the call, stored, or in memory while the database is away. Its id stays the same: a commit whose
        outcome is unknown leaves no other row."""
        call = _new_call(invite.leg.facts, route)
        if self._admission_reads.is_away:
            return await self._create_in_memory(invite, route, call)
        try:
            store = partial(self._store_call, invite=invite, route=route, call=call)
            stored, has_event = await self._admission_reads.within_timeout(
                self._database.write(store, lock=route.number.organization_id)
            )
        except TimeoutError:
            return await self._create_in_memory(invite, route, call)
        except StorageUnavailable as error:
            if not error.is_outage:
                raise
            return await self._create_in_memory(invite, route, call)
        if has_event:
            self._deps.webhook_queued()
        return stored

    def _store_call(
        self, conn: sa.Connection, invite: _PendingInvite, route: InboundRoute, call: Call
    ) -> tuple[Call, bool]:
        """Returns the call, and True if a webhook is told. Raises `CallRejected`: 486 at
        the organization's limit, 503 at the process's limit or after the admission timeout."""
        organization_id = route.number.organization_id
        if invite.timed_out:
            raise CallRejected(503, "the INVITE was rejected after the admission timeout")
        self._check_admission(conn, organization_id)
        exceeded = self._limits.exceeded_limit(
            conn, organization_id, route.max_calls, self._ended_but_open, self._referred_legs
        )
        _reject_if_exceeded(exceeded)
        stored = calls.insert(conn, call)
        return stored, call_events.add_started(conn, stored, route.agent, call.created_at)

    async def _create_in_memory(self, invite: _PendingInvite, route: InboundRoute, call: Call) -> Call:
        """Returns the call without a row, because the disk is full or the database is away: it is admitted by the same
        rules, by what is known, and stored afterwards. Raises `CallRejected`, `StorageUnavailable`, and `Unavailable`
        if too many calls wait."""
        organization_id = route.number.organization_id
        await self._admission_reads.read(lambda conn: self._check_admission(conn, organization_id), priority="calls")
        if invite.timed_out:
            raise CallRejected(503, "the INVITE was rejected after the admission timeout")
        buffer = self._deps.finalizer.outage_buffer
        owners = {
            **buffer.open_calls(),
            **{each.call.id: each.call.organization_id for each in self.active_calls() if not each.call.is_chat},
        }
        open_calls = OpenCallCounts(sum(owner == organization_id for owner in owners.values()), len(owners))
        limit = self._limits.organization if route.max_calls is None else route.max_calls
        _reject_if_exceeded(
            self._limits.exceeded_limit_by(open_calls, organization_id, self._node_share(limit), self._referred_legs)
        )
        buffer.add(call)
        buffer.add_start(CallStart(call, route.agent, call.created_at))
        self._spawn(self._journal_row(call.id))
        return call

    async def _journal_row(self, call_id: str) -> None:
        """Besides the caller, who does not wait for the disk."""
        buffer = self._deps.finalizer.outage_buffer
        if buffer.row(call_id) is not None and call_id not in buffer.ended_calls:
            await buffer.journal(call_id)

    async def _store_active_calls(self, active: Sequence[ActiveCall]) -> None:
        async with self._rows_lock:
            for each in active:
                try:
                    await self._deps.finalizer.store_active_call(each.call, each.snapshot().answered_at)
                except TrunklineError as error:
                    log.debug("call.progress_not_stored", call_id=each.call.id, cause=str(error))

    def _refer_support(self, dialer: OutboundDialer) -> ReferSupport:
        return ReferSupport(dialer.dial_transfer, self._referred_legs)

    @property
    def transfer_dependencies(self) -> TransferDependencies | None:
        """What the transfers of a call need; None: no call is placed."""
        if self._pump is None or self._dialer is None:
            return None
        return TransferDependencies(
            dialer=self._dialer,
            pump=self._pump,
            check_capacity=self.check_capacity,
            refer_timeout_s=self._refer_timeout_s,
            children=self._child_calls,
            on_end_lost=self._on_end_lost,
        )

    def _on_end_lost(self, call_id: str) -> None:
        """The end of a call could not be stored: it does not count any more, and the next start closes it."""
        self._lost_ends |= {call_id}

    def _register(self, call: ActiveCall, task: asyncio.Task[None]) -> None:
        """Make the call active until `_run_call` returns."""
        self._active[call.call.id] = call, task
        self._deps.live_calls.begin(call.call)
        self._capacity_changed()

    def _calls_with_leg(self) -> int:
        return sum(call.has_leg for call, _ in self._active.values())

    def _capacity_changed(self) -> None:
        if self.on_capacity_changed is not None:
            self.on_capacity_changed()

    async def _run_call(self, call: ActiveCall) -> None:
        """Run a registered call."""
        call_id = call.call.id
        call_lock.set(call.call.organization_id)
        if self._draining:
            call.end("server_shutdown")
        live_calls = contextlib.nullcontext() if call.call.is_chat else metrics.LIVE_CALLS.track_inprogress()
        try:
            with live_calls:
                await call.run()
        except Exception as error:  # noqa: BLE001 - the end could not be stored: that concerns this call alone
            self._on_end_lost(call_id)
            log.error("call.end_lost", call_id=call_id, error=repr(error), remedy="closed at the next start")
        finally:
            del self._active[call_id]
            self._deps.live_calls.end(call_id)
            self._capacity_changed()


def _acquire_queued(conn: sa.Connection, limit: int) -> int:
    own = nodes.live_node(conn, own_node.filter_of(conn) or "")
    return 0 if own is None or own.state != "up" else queued_calls.acquire(conn, limit)


def _give_back_own(conn: sa.Connection) -> list[str]:
    """Returns the ids of the calls that another node dials now. A node of an older version does not."""
    own = own_node.filter_of(conn)
    found = nodes.all_of(conn)
    version = next((each.release for each in found if each.name == own), ())
    if own is None:
        return []
    if any(each.state == "up" and each.name != own and each.release >= version for each in found):
        return queued_calls.give_back(conn, (own,))
    queued_calls.acquire(conn, ENDED_AT_ONCE)
    return []


def _reject_if_exceeded(limit: Literal["organization", "process"] | None) -> None:
    """Raises `CallRejected` if a limit is reached."""
    match limit:
        case "organization":
            raise CallRejected(486, "the organization has too many calls")
        case "process":
            raise CallRejected(503, "the server is full", RETRY_AFTER_S)


def _new_call(facts: InviteFacts, route: InboundRoute) -> Call:
    """Returns the call of an inbound leg as it is stored first."""
    number = route.number
    return calls.new_inbound(
        organization_id=number.organization_id,
        agent_id=route.agent.id,
        agent_version=route.agent.version,
        phone_number_id=number.id,
        provider=number.provider,
        call_sid=facts.sip_call_id,
        customer_number=sip_metadata.remote_number(facts),
        called_number=number.number,
        metadata=sip_metadata.headers_to_metadata(facts),
    )
