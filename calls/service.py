"""The calls of this process: admission of inbound INVITEs, queued outbound calls, active calls, drain and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextvars import Context
from typing import Any, Final

import sqlalchemy as sa
import structlog

from calls import metrics, row_reconciliation
from calls.active_calls import ActiveCall, ActiveCalls
from calls.admission.concurrency_limits import ConcurrencyLimits, ReferredLegs
from calls.admission.digest_auth import InboundDigestAuth
from calls.admission.load_shedding import ModelLoadShedder
from calls.admission.number_routing import InboundRoute
from calls.admission.refused_invites import RefusalRecorder, RefusedInvites
from calls.admission.rejection import RETRY_AFTER_S
from calls.invite_admission import AdmissionCheck, AdmissionRules, InviteAdmission
from calls.live.capacity import CallCapacity
from calls.outbound.dialer import OutboundDialer
from calls.outbound_queue import OutboundQueue
from calls.post_call.journal_replay import JournalReplay
from calls.row_reconciliation import RowReconciliation
from calls.session.call_listener import CallListener
from calls.session.call_session import CallSession
from calls.session.dependencies import CallDependencies
from calls.session.outbound_call import OutboundCall
from calls.session.peer_reroute import ReferSupport
from calls.session.transfer.call_transfers import TransferDependencies
from calls.session.transfer.child_call import ChildCall, UnplacedChildCall
from config.errors import Conflict, LimitExceeded, Unavailable
from sipcore.audio.pump import Pump
from sipcore.dialogs.call_leg import CallLeg
from sipcore.dialogs.leg import Leg
from storage.accounts import organizations
from storage.accounts.organizations import Organization
from storage.calls import calls
from storage.calls.calls import Call, EndedReason
from storage.calls.queued_calls import QueuedCall
from storage.calls.transfers import Transfer, TransferOrder
from storage.database.database import call_lock
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy

HANGUP_ANALYSIS_WAIT_S: Final = 2.0
"""Time that `hangup` waits for the analysis of the call."""

log = structlog.get_logger()


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
        self._limits = limits
        self._dialer = dialer
        self._referred_legs = ReferredLegs(self.check_capacity, self._capacity_changed)
        self._draining = False
        self._ending = False  # every call is ended, also one that is admitted after that
        self._tasks: set[asyncio.Task[None]] = set()
        self._active = ActiveCalls(deps.finalizer.outage_buffer)
        if load_shedder is not None:
            load_shedder.active_calls = self._active.count_with_leg
        start = None if dialer is None else self._start_queued
        self._queue = OutboundQueue(deps.database, self._active, start, self._free_places, self._spawn)
        self._rows = RowReconciliation(deps.database, deps.finalizer, self._active)
        self._journal_replay = JournalReplay(deps.finalizer)
        self.refused_invites: Final = RefusedInvites()
        rules = AdmissionRules(
            limits, digest_auth, load_shedder, check_admission, trunk_policy, inbound_codecs, node_share
        )
        self._admission = InviteAdmission(
            deps,
            rules,
            self._active,
            self._referred_legs,
            RefusalRecorder(self.refused_invites, deps.database, deps.aliases_of, self._spawn),
            session_of=self._session_of,
            run=self._run_session,
            on_unstored=lambda call_id: self._spawn(self._rows.journal(call_id)),
            on_rejected=lambda storing: self._spawn(self._rows.end_rejected(storing)),
            is_draining=lambda: self._draining,
        )
        self.on_capacity_changed: Callable[[], None] | None = None
        """Called after a call or a transfer leg was added or removed: `is_full` may have changed."""

    @property
    def active_call_count(self) -> int:
        """Calls that count against the limits: queued here, ringing or answered."""
        return self._active.count

    @property
    def is_full(self) -> bool:
        """True if the process has reached its limit of concurrent calls."""
        return self.active_call_count + self._referred_legs.total >= self._limits.process

    @property
    def is_draining(self) -> bool:
        """True once no new calls are admitted or placed."""
        return self._draining

    def active_calls(self) -> list[ActiveCall]:
        """The calls that are active now."""
        return self._active.all()

    async def recover(self, nodes: Collection[str] | None = None) -> int:
        """Close the calls that dead nodes left open, by default those of all; returns their number. For start-up,
        before calls are admitted, and for the nodes that are found to be down."""
        closed = await self._deps.finalizer.recover(self._deps.data_dir, nodes)
        if closed:
            log.warning("calls.recovered", closed=closed)
        return closed

    def on_incoming_call(self, leg: Leg) -> None:
        """Admit a new inbound leg and run its call, or reject it; returns at once."""
        self._spawn(self._admission.handle(leg))

    def check_capacity(self, conn: sa.Connection, organization: Organization) -> None:
        """Check that there is a place for one more outbound call or transfer leg. For the transaction that stores it,
        on the database's thread. Raises `LimitExceeded` when the organization's limit is reached, `Unavailable` when
        the process's is, or while it drains."""
        if self._draining:
            raise Unavailable("The server is shutting down", RETRY_AFTER_S)
        match self._limits.exceeded_limit(
            conn, organization.id, organization.max_calls, self._active.ended_but_open, self._referred_legs
        ):
            case "organization":
                raise LimitExceeded("Too many concurrent calls. Please try again later.")
            case "process":
                raise Unavailable("The server is full", RETRY_AFTER_S)

    def capacity(self, conn: sa.Connection, organization_id: str, left_on_other_nodes: int = 0) -> CallCapacity:
        """Returns the numbers of an organization's calls. On the database's thread."""
        organization = organizations.get(conn, organization_id)
        open_calls = calls.count_open(conn, organization_id, self._active.ended_but_open)
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
        self._queue.check()

    def start_calls_queued_meanwhile(self) -> None:
        """Start the queued calls if anything was stored since they were read last; returns at once."""
        self._queue.check_if_changed()

    async def hangup(self, call_id: str) -> bool:
        """End an active call as `api_hangup` and wait until its end is stored, or is buffered until it can be. Returns
        False if the call is not active in this process."""
        if call_id not in self._active:
            await self._queue.run(call_id)
        if (child := self._active.child_calls.get(call_id)) is not None:
            child.lifecycle.end("api_hangup")
            await asyncio.wait((child.end_stored,))
            await self._deps.finalizer.wait_closed(call_id, HANGUP_ANALYSIS_WAIT_S)
            return True
        if (call := self._active.find(call_id)) is None:
            return False
        task = self._active.task_of(call_id)
        call.end("api_hangup")
        await asyncio.wait((task,))
        await self._deps.finalizer.wait_closed(call_id, HANGUP_ANALYSIS_WAIT_S)
        return True

    async def transfer(self, call_id: str, order: TransferOrder) -> Transfer:
        """Start a transfer of an active call; returns it as stored. Raises `Conflict` if the call is not in progress in
        this process, `Invalid` for an unknown target, and the errors of outbound calls."""
        if (call := self._active.find(call_id)) is None:
            raise Conflict("The call is not in progress")
        return await call.transfer(order)

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
        if (call := self._active.find(call_id)) is None:
            raise Conflict("The call is not in progress with the agent")
        return call

    def listen(self, call_id: str) -> CallListener:
        """Listen in to an active call, or to the second leg of a transfer. Raises `Conflict` if it is not in progress
        in this process."""
        return self._active_or_child(call_id).listen()

    async def set_held(self, call_id: str, on: bool) -> None:
        """Put the other side of an active call, or of the second leg of a transfer, on hold, or resume the call.
        Idempotent. Raises `Conflict` if the call is not in progress in this process."""
        self._active_or_child(call_id).set_held(on)

    def _active_or_child(self, call_id: str) -> ActiveCall | ChildCall | UnplacedChildCall:
        call = self._active.child_calls.get(call_id) or self._active.find(call_id)
        if call is None:
            raise Conflict("The call is not in progress")
        return call

    async def drain(self, timeout_s: float) -> None:
        """Admit and place no new calls and wait for the active ones; after `timeout_s` they end as `server_shutdown`.
        Queued calls are given to another node that is up; other calls without a leg end at once. Returns when the end
        of every call is stored."""
        self._draining = True
        until_s = time.monotonic() + timeout_s
        await self._queue.drain()
        for call in self._active.all():
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
        self._draining = self._ending = True
        for call in self._active.all():
            call.end(reason)

    def end_all_without_analysis(self) -> None:
        """End every call now; no analysis waits for a model."""
        self.end_all("server_shutdown")
        self._deps.finalizer.skip_model_analysis()

    def on_outage_over(self) -> None:
        """Store what an outage of the database, or a full disk, kept from being stored; returns at once."""
        self._deps.finalizer.on_outage_over()
        self._spawn(self._rows.store(self._active.all()))
        self._spawn(self._journal_replay.replay())
        asyncio.get_running_loop().call_later(row_reconciliation.CLOSE_AFTER_OUTAGE_S, self._close_rows_without_session)

    def _close_rows_without_session(self) -> None:
        if not self._draining:
            self._spawn(self._rows.close_rows_without_session())

    async def replay_journal(self) -> None:
        """Store what the journal has of a former process. For start-up, before `recover`."""
        await self._deps.finalizer.replay_journal(at_start=True)

    async def replay_journal_periodically(self) -> None:
        """As `JournalReplay.run`."""
        await self._journal_replay.run()

    async def store_rows_periodically(self) -> None:
        """As `RowReconciliation.run`."""
        await self._rows.run()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Returns a task in an empty context: its log lines do not carry the id of the request that started it."""
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _free_places(self) -> int:
        """How many more queued calls this process may have."""
        return 0 if self._draining else self._limits.process - self.active_call_count

    def _start_queued(self, queued: QueuedCall) -> None:
        assert self._dialer is not None
        dialer = self._dialer
        self.start(OutboundCall(queued, self._deps, dialer, self._refer_support(dialer), self.transfer_dependencies))

    def _session_of(self, call: Call, route: InboundRoute, leg: Leg) -> CallSession:
        return CallSession(
            call=call,
            agent=route.agent,
            number=route.number,
            leg=leg,
            deps=self._deps,
            transfers=None if self._dialer is None else self._refer_support(self._dialer),
            transfer_dependencies=self.transfer_dependencies,
        )

    async def _run_session(self, session: CallSession) -> None:
        """Run the session of an INVITE in the present task."""
        task = asyncio.current_task()
        assert task is not None
        self._register(session, task)
        await self._run_call(session)

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
            children=self._active.child_calls,
            on_end_lost=self._active.on_end_lost,
        )

    def _register(self, call: ActiveCall, task: asyncio.Task[None]) -> None:
        """Make the call active until `_run_call` returns."""
        self._active.add(call, task)
        self._deps.live_calls.begin(call.call)
        self._capacity_changed()

    def _capacity_changed(self) -> None:
        if self.on_capacity_changed is not None:
            self.on_capacity_changed()

    async def _run_call(self, call: ActiveCall) -> None:
        """Run a registered call. One whose INVITE was admitted when the drain began goes on."""
        call_id = call.call.id
        call_lock.set(call.call.organization_id)
        is_taken = call.has_leg and call.call.direction == "inbound"
        if self._ending or (self._draining and not is_taken):
            call.end("server_shutdown")
        live_calls = contextlib.nullcontext() if call.call.is_chat else metrics.LIVE_CALLS.track_inprogress()
        try:
            with live_calls:
                await call.run()
        except Exception as error:  # noqa: BLE001 - the end could not be stored: that concerns this call alone
            self._active.on_end_lost(call_id)
            log.error("call.end_lost", call_id=call_id, error=repr(error), remedy="closed at the next start")
        finally:
            self._active.remove(call_id)
            self._deps.live_calls.end(call_id)
            self._capacity_changed()
