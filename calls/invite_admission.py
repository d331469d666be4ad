"""Admission of inbound INVITEs: routed to an agent and stored as a call, or rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Final, Literal

import sqlalchemy as sa
import structlog

from calls import metrics
from calls.active_calls import ActiveCalls
from calls.admission.admission_reads import AdmissionReads
from calls.admission.codec_limit import limit_codecs
from calls.admission.concurrency_limits import ConcurrencyLimits, ReferredLegs
from calls.admission.digest_auth import AuthenticationRequired, InboundDigestAuth
from calls.admission.load_shedding import ModelLoadShedder
from calls.admission.number_routing import InboundRoute, match_number, require_active_agent
from calls.admission.refused_invites import RefusalRecorder
from calls.admission.rejection import RETRY_AFTER_S, CallRejected
from calls.call_record import sip_metadata
from calls.post_call.journal_records import CallStart
from calls.session.call_session import CallSession
from calls.session.dependencies import CallDependencies
from calls.webhooks import call_events
from config.errors import TrunklineError, Unavailable
from sipcore.dialogs.leg import InviteFacts, Leg
from storage.calls import calls
from storage.calls.calls import Call, OpenCallCounts
from storage.database.errors import StorageUnavailable
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy

MAX_PENDING_INVITES: Final = 64
"""INVITEs that wait for the database at once; further ones get 503 with Retry-After, so that a database that does not
respond ties up no more of them."""
ADMISSION_TIMEOUT_S: Final = 4.0
"""Time to admit an INVITE; afterwards it gets 503, because its trunk may have another route."""

AdmissionCheck = Callable[[sa.Connection, str], None]
"""Called with an organization's id in the transaction that stores its call. Raises `CallRejected`."""

log = structlog.get_logger()


@dataclass(frozen=True)
class AdmissionRules:
    """What decides on an INVITE. `digest_auth` challenges INVITEs to numbers with `sip_inbound_auth`. With
    `load_shedder`, INVITEs get 503 while the models cannot answer in time. `check_admission` may reject a call that all
    other rules admit. `trunk_policy` decides which organizations' source addresses count. `inbound_codecs` returns the
    codecs that calls to a number are limited to, preferred first; (): they may have all. `node_share` returns how many
    of so many calls of an organization this node may have while the database is away, which counts them on all
    nodes."""

    limits: ConcurrencyLimits
    digest_auth: InboundDigestAuth
    load_shedder: ModelLoadShedder | None
    check_admission: AdmissionCheck
    trunk_policy: TrunkPolicy
    inbound_codecs: Callable[[PhoneNumber], Sequence[str]]
    node_share: Callable[[int], int]


class _InviteState(Enum):
    """What has become of an INVITE while its call is being stored."""

    PENDING = auto()
    WITHDRAWN = auto()
    """It is to be rejected."""
    TIMED_OUT = auto()
    """It was rejected after `ADMISSION_TIMEOUT_S`."""


@dataclass
class _PendingInvite:
    """An inbound leg that is being admitted."""

    leg: Leg
    number: PhoneNumber | None = None
    """The number that it is for, once that is known."""
    state: _InviteState = _InviteState.PENDING
    """Also read on the database's thread."""

    @property
    def has_timed_out(self) -> bool:
        """True once it was rejected after `ADMISSION_TIMEOUT_S`."""
        return self.state is _InviteState.TIMED_OUT


class InviteAdmission:
    """Admits inbound legs. `session_of` makes the session of a call, `run` makes it active and runs it in the task of
    its INVITE; `on_unstored` is called with the id of a call that is admitted without a row, and `on_rejected` with the
    transaction that may yet store the call of an INVITE that is rejected. Event loop only."""

    def __init__(
        self,
        deps: CallDependencies,
        rules: AdmissionRules,
        active: ActiveCalls,
        referred_legs: ReferredLegs,
        refusals: RefusalRecorder,
        *,
        session_of: Callable[[Call, InboundRoute, Leg], CallSession],
        run: Callable[[CallSession], Awaitable[None]],
        on_unstored: Callable[[str], object],
        on_rejected: Callable[[asyncio.Future[tuple[Call, bool]]], object],
        is_draining: Callable[[], bool],
    ) -> None:
        self._database = deps.database
        self._aliases_of: Callable[[str], Collection[str]] = deps.aliases_of
        self._webhook_queued = deps.webhook_queued
        self._buffer = deps.finalizer.outage_buffer
        self._reads = deps.admission_reads or AdmissionReads(deps.database)
        self._rules = rules
        self._active = active
        self._referred_legs = referred_legs
        self._refusals = refusals
        self._session_of = session_of
        self._run = run
        self._on_unstored = on_unstored
        self._on_rejected = on_rejected
        self._is_draining = is_draining
        self._pending_invites = 0

    async def handle(self, leg: Leg) -> None:
        """Admit an inbound leg and run its call, or reject it. An error ends this leg alone."""
        facts = leg.facts
        event = log.bind(source=facts.source, dialled=facts.request_user, sip_call_id=facts.sip_call_id)
        try:
            session = await self._admit(leg)
            if session is not None:
                await self._run(session)
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
        """Returns the session of an inbound leg; None if the INVITE was rejected meanwhile because the database did not
        respond in time. Raises `CallRejected`, `AuthenticationRequired`, and other errors."""
        if self._pending_invites >= MAX_PENDING_INVITES:
            raise CallRejected(503, "too many callers wait for the database", RETRY_AFTER_S)
        invite = _PendingInvite(leg)
        self._pending_invites += 1
        try:
            admitting = asyncio.ensure_future(self._route_and_create(invite))
            await asyncio.wait((admitting,), timeout=ADMISSION_TIMEOUT_S)
            if not admitting.done():
                invite.state = _InviteState.TIMED_OUT
                late = CallRejected(503, "the database does not answer", RETRY_AFTER_S)
                log.error("call.refused", code=late.code, why=late.message, sip_call_id=leg.sip_call_id)
                await self._count_and_reject(leg, late)
            return await self._session_if_in_time(admitting, invite)
        finally:
            self._pending_invites -= 1

    async def _session_if_in_time(
        self, admitting: asyncio.Future[CallSession], invite: _PendingInvite
    ) -> CallSession | None:
        """Returns the session if the INVITE was admitted. One that was stored after the timeout is ended at once."""
        try:
            session = await admitting
        except TrunklineError:
            if invite.has_timed_out:
                return None
            raise
        if invite.has_timed_out:
            session.end("error")
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
        facts, aliases = invite.leg.facts, self._aliases_of(invite.leg.facts.source)
        target = await self._reads.read(
            lambda conn: match_number(conn, facts, aliases, self._rules.trunk_policy), priority="calls"
        )
        invite.number = target.number
        self._rules.digest_auth.authenticate(facts, target.number)
        route = require_active_agent(target)
        if self._is_draining():
            raise CallRejected(503, "the server is draining", RETRY_AFTER_S)
        await limit_codecs(invite.leg, self._rules.inbound_codecs(route.number))
        load_shedder = self._rules.load_shedder
        if load_shedder is None:
            return await self._create_session(invite, route)
        if (why := load_shedder.admit_inbound()) is not None:
            raise CallRejected(503, why, RETRY_AFTER_S)
        try:
            return await self._create_session(invite, route)
        except BaseException:
            load_shedder.undo_admission()
            raise
        finally:
            load_shedder.end_admission()

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
        return self._session_of(call, route, invite.leg)

    async def _create_call(self, invite: _PendingInvite, route: InboundRoute) -> Call:
        """Returns the call, stored, or in memory while the database is away. Its id stays the same: a commit whose
        outcome is unknown leaves no other row."""
        call = _new_call(invite.leg.facts, route)
        if self._reads.is_away:
            return await self._create_in_memory(invite, route, call)
        store = partial(self._store_call, invite=invite, route=route, call=call)
        storing = asyncio.ensure_future(self._database.write(store, lock=route.number.organization_id))
        try:
            stored, has_event = await self._reads.within_timeout(storing)
        except TimeoutError:
            try:
                return await self._create_in_memory(invite, route, call)
            except BaseException:
                if not invite.has_timed_out:
                    invite.state = _InviteState.WITHDRAWN
                self._on_rejected(storing)
                raise
        except StorageUnavailable as error:
            if not error.is_outage:
                raise
            return await self._create_in_memory(invite, route, call)
        if has_event:
            self._webhook_queued()
        return stored

    def _store_call(
        self, conn: sa.Connection, invite: _PendingInvite, route: InboundRoute, call: Call
    ) -> tuple[Call, bool]:
        """Returns the call, and True if there is a webhook. Raises `CallRejected`: 486 at the organization's limit, 503
        at the process's limit or after the admission timeout."""
        organization_id = route.number.organization_id
        if invite.state is not _InviteState.PENDING:
            raise CallRejected(503, "the INVITE was rejected meanwhile")
        self._rules.check_admission(conn, organization_id)
        exceeded = self._rules.limits.exceeded_limit(
            conn, organization_id, route.max_calls, self._active.ended_but_open, self._referred_legs
        )
        _reject_if_exceeded(exceeded)
        stored = calls.insert(conn, call)
        return stored, call_events.add_started(conn, stored, route.agent, call.created_at)

    async def _create_in_memory(self, invite: _PendingInvite, route: InboundRoute, call: Call) -> Call:
        """Returns the call without a row, because the disk is full or the database is away: it is admitted by the same
        rules, by what is known, and stored afterwards. Raises `CallRejected`, `StorageUnavailable`, and `Unavailable`
        if too many calls wait."""
        organization_id = route.number.organization_id
        await self._reads.read(lambda conn: self._rules.check_admission(conn, organization_id), priority="calls")
        if invite.has_timed_out:
            raise CallRejected(503, "the INVITE was rejected meanwhile")
        buffer = self._buffer
        owners = {
            **buffer.open_calls(),
            **{each.call.id: each.call.organization_id for each in self._active.all() if not each.call.is_chat},
        }
        open_calls = OpenCallCounts(sum(owner == organization_id for owner in owners.values()), len(owners))
        limits = self._rules.limits
        limit = limits.organization if route.max_calls is None else route.max_calls
        _reject_if_exceeded(
            limits.exceeded_limit_by(open_calls, organization_id, self._rules.node_share(limit), self._referred_legs)
        )
        buffer.add(call)
        buffer.add_start(CallStart(call, route.agent, call.created_at))
        self._on_unstored(call.id)
        return call


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
