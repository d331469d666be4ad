"""Finalization of calls. The end of a call to be analyzed is first stored as pending, so that the call does not count
any more and nothing is lost if the process dies; then it is analyzed, which takes a while; then it is closed: its end,
the analysis and the webhook are stored in one transaction. Any other call is closed at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextvars import Context
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
import structlog

from calls import metrics
from calls.call_record.billing import FREE, RateCard, charge, observe_usage
from calls.call_record.metering import CallUsage
from calls.call_record.outcome import CallOutcome
from calls.call_record.transfer_calls import transfer_calls_json
from calls.post_call.analysis import CallAnalyzer, needs_analysis
from calls.post_call.journal_records import CallRecord, CallStart
from calls.post_call.outage_buffer import OutageBuffer
from calls.post_call.redaction import redactor
from calls.post_call.replay_pace import ReplayPace
from calls.post_call.webhook_payload import call_completed_payload
from calls.webhooks import call_events
from config.clock import utc_now
from config.secrets import Secrets
from config.signed_links import signed_url
from storage.accounts import organizations
from storage.agents import agents, versions
from storage.agents.agents import Agent
from storage.calls import calls, late_end, pending_finalization, queued_calls, recordings, transfers
from storage.calls.call_journal import CallJournal, JournalSize
from storage.calls.calls import Analysis, Call
from storage.calls.pending_finalization import PendingFinalization
from storage.database.database import Database, call_lock
from storage.database.duplicate_filter import DuplicateFilter
from storage.database.errors import StorageUnavailable
from storage.database.own_node import name_of
from storage.nodes.nodes import still_down

STORE_RETRIES_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Waits between the attempts to store a call's end while the database fails. After them the call stays open in the
database and is closed at the next start."""
PENDING_RETRY_S: Final = 60.0
"""Interval of further attempts if the end is pending: this process closes the call, or the next one."""
LOST_DATA: Final = ["the end", "the last words of the transcript", "media quality", "usage and cost"]
LOST_REMEDY: Final = "closed at the next start"
JOURNAL_REMEDY: Final = "stored from the journal at the next start"
CHILD_CALL_TIMEOUT_S: Final = 90.0
"""Maximum wait of a call for the analyses of its child calls."""
CONCURRENT_RECOVERIES: Final = 4
"""Calls of a dead process that are analyzed at once, besides new ones."""

log = structlog.get_logger()
T = TypeVar("T")


class CallFinalizer:
    """Stores the ends of calls. `origin` is the scheme, host and port of links to this server; `on_webhook` is called
    after a webhook was put into the outbox."""

    def __init__(
        self,
        database: Database,
        secrets: Secrets,
        origin: str,
        on_webhook: Callable[[], None],
        rate_card: RateCard = FREE,
        analyzer: CallAnalyzer | None = None,
        journal: CallJournal | None = None,
        pace: ReplayPace | None = None,
    ) -> None:
        """Without an `analyzer` no call is analyzed. Without a `journal` an end that cannot be stored is in memory
        alone."""
        self._database = database
        self._secrets = secrets
        self._origin = origin
        self._on_webhook = on_webhook
        self._rate_card = rate_card
        self._analyzer = analyzer
        self._closing: dict[str, asyncio.Task[None]] = {}
        """The tasks of calls that are finalized in the background."""
        self._stopping = asyncio.Event()
        self._model_skipped = asyncio.Event()
        self._outage_over = asyncio.Event()
        self._journal: Final = journal
        if journal is not None:
            journal.on_size = _observe_journal
        self._replaying = asyncio.Lock()
        self._pace: Final = pace or ReplayPace()
        self.outage_buffer: Final = OutageBuffer(journal)
        self._recovering = asyncio.Semaphore(CONCURRENT_RECOVERIES)
        self.on_pending: Callable[[str, CallOutcome], None] = lambda *_: None
        """Called with the id of a call whose end is stored, while it is still to be analyzed and closed."""
        self.on_closed: Callable[[Call, CallOutcome], None] = lambda *_: None
        """Called with a call that was closed: all of its end is stored."""
        self.on_recovered: Callable[[Call], None] = lambda _: None
        """Called with a call of a dead process or node that was closed."""

    async def finish(self, call_id: str, outcome: CallOutcome, agent: Agent | None) -> None:
        """Store the end of a call and its webhook, or a pending end if the call is to be analyzed and closed later.
        `agent` counts if it was deleted meanwhile. While the database fails this is tried again for half a minute,
        but not in an outage (`StorageUnavailable.is_outage`). Then the end is written to the journal, and stored in the
        background once that is possible; raises `StorageUnavailable` if it cannot be kept. The outcome is redacted by
        the organization's rules before it is stored in the database."""
        try:
            pending = await self._finish(call_id, outcome, agent)
        except StorageUnavailable as error:
            is_kept = self.outage_buffer.add_end(call_id)  # first: an end keeps its record in the journal
            is_journaled = await self.outage_buffer.journal(call_id, outcome)
            if not is_kept or not (error.is_outage or is_journaled):
                self.outage_buffer.forget(call_id)
                raise
            self._in_background(call_id, self._finish_after_outage(call_id, outcome, agent))
        else:
            if pending is not None:
                self._in_background(call_id, self._analyze_and_close(call_id, pending, agent))

    async def _finish(self, call_id: str, outcome: CallOutcome, agent: Agent | None) -> CallOutcome | None:
        """Close a call, or store its pending end and return the redacted outcome: it is to be analyzed, or a child call
        is."""
        outcome = await self._redact(call_id, outcome)
        analyzed = agent is not None and self._analyzer is not None and needs_analysis(agent, outcome.transcript)
        if not analyzed and not self._closing_of(outcome.child_call_ids):
            await self._close(call_id, outcome, agent, None)
            return None
        is_pending, has_webhook = await self._with_retries(call_id, partial(_store_pending, call_id, outcome, agent))
        if has_webhook:
            self._on_webhook()
        if is_pending:
            self.on_pending(call_id, outcome)
        return outcome if is_pending else None

    async def _finish_after_outage(self, call_id: str, outcome: CallOutcome, agent: Agent | None) -> None:
        """`_finish`, and analysis, in the background, once the outage is over."""
        try:
            pending = await self._finish(call_id, outcome, agent)
        except Exception as error:  # noqa: BLE001 - the end could not be stored: that concerns this call alone
            lost = ["the call"] if self.outage_buffer.row(call_id) is not None else LOST_DATA
            if self.outage_buffer.is_journaled(call_id):
                log.warning("call.end_in_journal", call_id=call_id, error=repr(error), remedy=JOURNAL_REMEDY)
            else:
                log.error("call.end_lost", call_id=call_id, error=repr(error), lost=lost, remedy=LOST_REMEDY)
            self.outage_buffer.forget(call_id)
        else:
            self.outage_buffer.remove_end(call_id)
            if pending is not None:
                await self._analyze_and_close(call_id, pending, agent)

    def on_outage_over(self) -> None:
        """Store the ends that wait for it now, one after the other (`ReplayPace`)."""
        waited_for, self._outage_over = self._outage_over, asyncio.Event()
        waited_for.set()

    async def replay_journal(self, *, at_start: bool = False) -> int:
        """Store what the journal has of calls that are not in memory, in order, and remove it there. Calls to be
        analyzed get a pending end; `at_start` `recover` analyzes them, and no pace is kept. What cannot be stored stays
        in the journal. Returns the number of calls. Raises `StorageUnavailable` in an outage."""
        replayed = 0
        async with self._replaying:
            for call_id in await self._journal.calls() if self._journal is not None else ():
                if not self.outage_buffer.knows(call_id) and call_id not in self._closing:
                    if not at_start:
                        await self._pace.turn()
                    replayed += await self._replay(call_id, analyze=not at_start)
        if replayed:
            log.info("call_journal.replayed", calls=replayed)
        return replayed

    async def _replay(self, call_id: str, *, analyze: bool) -> bool:
        """Store what the journal has of one call. Returns False if that is not possible; an error concerns this call
        alone, unless it is an outage."""
        assert self._journal is not None
        if (found := await self._journal.read(call_id)) is None:
            return False
        try:
            await self._store_record(call_id, CallRecord.from_json(found), analyze=analyze)
        except StorageUnavailable as error:
            if error.is_outage:
                raise
            log.error("call_journal.not_stored", call_id=call_id, error=repr(error))
            return False
        except Exception as error:
            log.error("call_journal.not_stored", call_id=call_id, error=repr(error), exc_info=error)
            return False
        self._journal.remove(call_id)
        metrics.REPLAYED_CALLS.inc()
        return True

    async def _store_record(self, call_id: str, record: CallRecord, *, analyze: bool) -> None:
        read = partial(_call_and_agent, call_id=call_id, unstored=record.call if record.row else None)
        call, agent = await self._database.read(read)
        if call is None:
            log.warning("call_journal.call_deleted", call_id=call_id)
            return
        lock = call_lock.set(call.organization_id)
        try:
            pending = await self._store_parts(call_id, record, agent)
            if pending is not None and analyze:
                self._in_background(call_id, self._analyze_and_close(call_id, pending, agent))
        finally:
            call_lock.reset(lock)

    async def _store_parts(self, call_id: str, record: CallRecord, agent: Agent | None) -> CallOutcome | None:
        """As `_finish`, with the row and the start of the call; it has no end if the process died during the call."""
        buffer = self.outage_buffer
        if record.row and record.call is not None:
            buffer.add(record.call)
        if record.start_at is not None and record.call is not None:
            buffer.add_start(CallStart(record.call, agent, record.start_at))
        try:
            if record.end is not None:
                return await self._finish(call_id, record.end, agent)
            await self._with_row(call_id)(lambda _: None)
            return None
        except BaseException:
            buffer.forget(call_id)
            raise

    async def store_active_call(self, call: Call, answered_at: datetime | None) -> None:
        """Store the row of an active call, and its answer, which a full disk kept in memory. Raises
        `StorageUnavailable`."""

        def store(conn: sa.Connection) -> bool:
            if answered_at is None or not calls.mark_answered(conn, call.id, answered_at):
                return False
            return call_events.add_answered(conn, call, _agent_of(conn, call), answered_at)

        work = partial(self.outage_buffer.insert_row_and, call.id, store)
        has_event = await self._database.write(work, lock=call.organization_id)
        if self.outage_buffer.remove_row(call.id) or has_event:
            self._on_webhook()

    def is_closing(self, call_id: str) -> bool:
        """True while a call is finalized in the background."""
        return call_id in self._closing

    async def wait_closed(self, call_id: str, timeout_s: float) -> bool:
        """Wait until a call with a pending end is closed. Returns False if that takes longer than `timeout_s`."""
        task = self._closing.get(call_id)
        return task is None or bool((await asyncio.wait((task,), timeout=timeout_s))[0])

    async def drain(self, timeout_s: float) -> None:
        """Wait for the analyses; after `timeout_s` rules complete them. Returns when every call is closed."""
        self._stopping.set()
        if self._closing and timeout_s > 0:
            await asyncio.wait(set(self._closing.values()), timeout=timeout_s)
        self.skip_model_analysis()
        while self._closing:
            await asyncio.wait(set(self._closing.values()))

    def skip_model_analysis(self) -> None:
        """Complete all analyses by rules from now on, because the server stops."""
        self._stopping.set()
        self._model_skipped.set()

    def _in_background(self, call_id: str, work: Coroutine[Any, Any, None]) -> None:
        context = Context()
        context.run(call_lock.set, call_lock.get())
        self._closing[call_id] = task = asyncio.create_task(work, context=context, name="after call")
        task.add_done_callback(lambda _: self._closing.pop(call_id, None))

    async def _analyze_and_close(self, call_id: str, outcome: CallOutcome, agent: Agent | None) -> None:
        """Analyze and close a call with a pending end. A failure concerns this call alone."""
        try:
            analysis = None
            if agent is not None and self._analyzer is not None and needs_analysis(agent, outcome.transcript):
                started_s = time.monotonic()
                analysis, usage = await self._analyzer.analyze(call_id, agent, outcome.transcript, self._model_skipped)
                outcome = replace(outcome, usage=outcome.usage.plus(usage))
                _observe_analysis(call_id, analysis, time.monotonic() - started_s)
            if children := self._closing_of(outcome.child_call_ids):
                await asyncio.wait(children, timeout=CHILD_CALL_TIMEOUT_S)
            await self._close(call_id, outcome, agent, analysis)
        except Exception as error:  # noqa: BLE001 - the end could not be stored: that concerns this call alone
            log.error("call.end_lost", call_id=call_id, error=repr(error), remedy=LOST_REMEDY)

    def _closing_of(self, call_ids: Iterable[str]) -> set[asyncio.Task[None]]:
        """The tasks that close these calls in the background."""
        return {self._closing[call_id] for call_id in call_ids if call_id in self._closing}

    async def _close(self, call_id: str, outcome: CallOutcome, agent: Agent | None, analysis: Analysis | None) -> None:
        ended = await self._with_retries(call_id, partial(self._store, call_id, outcome, agent, analysis))
        if ended is not None:
            call, has_webhook = ended
            _observe(call, outcome.usage)
            self.on_closed(call, outcome)
            if has_webhook:
                self._on_webhook()

    async def _redact(self, call_id: str, outcome: CallOutcome) -> CallOutcome:
        call = self.outage_buffer.row(call_id)
        rules_of = partial(redactor.redaction_rules, call_id=call_id)
        if call is not None:
            rules_of = partial(redactor.redaction_rules_of_organization, organization_id=call.organization_id)
        rules = await self._with_retries(call_id, rules_of, self._database.read)
        return await asyncio.to_thread(redactor.redact_outcome, outcome, rules) if rules else outcome

    async def _with_retries(
        self,
        call_id: str,
        work: Callable[[sa.Connection], T],
        transaction: Callable[[Callable[[sa.Connection], T]], Awaitable[T]] | None = None,
    ) -> T:
        """Returns the result of a transaction (by default one that writes), which is tried again for half a minute, in
        the background until the server stops, with short waits again after an outage. Then raises
        `StorageUnavailable`; at once if the disk is full and a session waits."""
        run, in_background = transaction or self._with_row(call_id), call_id in self._closing
        duplicates = DuplicateFilter()
        waits = chain(STORE_RETRIES_S, repeat(PENDING_RETRY_S) if in_background else ())
        while (wait_s := next(waits, None)) is not None:
            outage_over = self._outage_over
            stop = self._stopping if wait_s == PENDING_RETRY_S else self._model_skipped
            try:
                return await run(work)
            except StorageUnavailable as error:
                if stop.is_set() if in_background else error.is_outage:
                    raise  # the next start closes the call, or this process when there is space
                write = log.debug if duplicates.is_duplicate(error) else log.error
                write("call.end_not_stored", call_id=call_id, cause=error.cause, again_in_s=wait_s)
                await (_wait_for_any((stop, outage_over), wait_s) if in_background else asyncio.sleep(wait_s))
                if in_background and outage_over.is_set():  # a connection may still be broken
                    waits = chain(STORE_RETRIES_S, repeat(PENDING_RETRY_S))
                if in_background and not stop.is_set():
                    await self._pace.turn()
        return await run(work)

    def _with_row(self, call_id: str) -> Callable[[Callable[[sa.Connection], T]], Awaitable[T]]:
        """Returns a runner of write transactions about a call, which also store the call's row if it is missing."""

        async def run(work: Callable[[sa.Connection], T]) -> T:
            result = await self._database.write(partial(self.outage_buffer.insert_row_and, call_id, work))
            if self.outage_buffer.remove_row(call_id):
                self._on_webhook()
            return result

        return run

    def _store(
        self, call_id: str, outcome: CallOutcome, agent: Agent | None, analysis: Analysis | None, conn: sa.Connection
    ) -> tuple[Call, bool] | None:
        """Store the end of a call and its webhooks; also of a call that another node has closed as `server_restart`.
        Returns the call, and True if there may be a webhook; None if the call was closed before."""
        if not outcome.placed and not queued_calls.is_own(conn, call_id):
            return None
        stored = self._store_open(call_id, outcome, agent, analysis, conn)
        if stored is None and _reopen(conn, call_id, outcome):
            stored = self._store_open(call_id, outcome, agent, analysis, conn)
        return stored

    def _store_open(
        self, call_id: str, outcome: CallOutcome, agent: Agent | None, analysis: Analysis | None, conn: sa.Connection
    ) -> tuple[Call, bool] | None:
        for transfer_end in outcome.transfer_ends:
            transfer_end.write(conn)
        has_answer = _add_missing_answer(conn, call_id, outcome, agent)
        charged_before = calls.cost_so_far(conn, call_id)
        call = calls.finish(
            conn,
            call_id,
            answered_at=outcome.answered_at,
            status=outcome.status,
            ended_reason=outcome.reason,
            ended_at=outcome.ended_at,
            transcript=outcome.transcript,
            timeline=outcome.timeline,
            recording=outcome.recorded,
            recording_disabled=agent is not None and not agent.recording_enabled,
            turn_count=outcome.turn_count,
            analysis=analysis,
            media_quality=outcome.media_quality,
            sip_end=outcome.sip_end,
        )
        if call is None:
            return None
        call = replace(call, cost=charge(conn, call, outcome.usage, self._rate_card, charged_before))
        return call, self._add_webhooks(conn, call, agent) or has_answer or bool(outcome.transfer_ends)

    async def recover(self, data_dir: Path, nodes: Collection[str] | None = None) -> int:
        """Close the calls that dead nodes left open, by default those of all, and put their webhooks into the outbox,
        in a transaction for each organization; calls with a pending end are analyzed and closed in the background.
        Returns the number of both. Queued calls that named nodes have not dialled are given back instead."""
        if nodes is not None:
            given_back = await self._database.write(partial(_give_queue_back, nodes), lock=queued_calls.LOCK)
            if given_back:
                log.info("calls.queue_given_back", calls=given_back, nodes=sorted(nodes))
        read = partial(pending_finalization.organizations_of_open_calls, nodes=nodes)
        return sum([await self._recover_of(each, data_dir, nodes) for each in await self._database.read(read)])

    async def _recover_of(self, organization_id: str, data_dir: Path, nodes: Collection[str] | None) -> int:
        close = partial(self._close_interrupted, data_dir, nodes, organization_id)
        closed, pending = await self._database.write(close, lock=organization_id)
        for call in closed:
            _observe(call, CallUsage.from_json(call.usage))
            self.on_recovered(call)
        if closed:
            self._on_webhook()
        for call, pending_end, agent in pending:
            lock = call_lock.set(call.organization_id)
            self._in_background(call.id, self._recover_call(call.id, _outcome_of(call, pending_end), agent))
            call_lock.reset(lock)
        return len(closed) + len(pending)

    async def _recover_call(self, call_id: str, outcome: CallOutcome, agent: Agent | None) -> None:
        async with self._recovering:
            await self._analyze_and_close(call_id, outcome, agent)

    def _close_interrupted(
        self, data_dir: Path, nodes: Collection[str] | None, organization_id: str, conn: sa.Connection
    ) -> tuple[list[Call], list[tuple[Call, PendingFinalization, Agent | None]]]:
        if nodes is not None:
            nodes = _dead_or_own(conn, nodes)
        transfers.close_open(conn, organization_id, utc_now(), nodes)
        last_written = partial(recordings.last_written, data_dir)
        closed = pending_finalization.end_interrupted_calls(conn, organization_id, last_written, nodes)
        closed = [
            replace(call, cost=charge(conn, call, CallUsage.from_json(call.usage), self._rate_card)) for call in closed
        ]
        for call in closed:
            self._add_webhooks(conn, call, None)
        kept = pending_finalization.take_over_pending(conn, organization_id, nodes)
        return closed, [(call, pending_end, _agent_at_beginning(conn, call)) for call, pending_end in kept]

    def _add_webhooks(self, conn: sa.Connection, call: Call, deleted_agent: Agent | None) -> bool:
        """Put the events of the end into the outbox if there are receivers; `deleted_agent` is the agent if it is no
        longer stored. Returns True if there is one."""
        agent = _agent_of(conn, call, closed=True) or deleted_agent
        has_failed = call_events.add_failed(conn, call, agent)
        receivers = call_events.receivers_without_event(conn, call, agent, "call.completed")
        if not receivers:
            return has_failed
        link = partial(signed_url, self._secrets, self._origin, now=utc_now())
        body = call_completed_payload(call, agent, transfer_calls_json(conn, call.id, link), link)
        call_events.add_to_outbox(conn, call, "call.completed", receivers, body)
        return True


def _dead_or_own(conn: sa.Connection, nodes: Collection[str]) -> list[str]:
    """The nodes among these that are down still, as one may have started again since, and this one: what it had
    before."""
    return [each for each in nodes if each == name_of(conn)] + still_down(conn, nodes)


def _give_queue_back(nodes: Collection[str], conn: sa.Connection) -> int:
    return len(queued_calls.give_back(conn, _dead_or_own(conn, nodes)))


async def _wait_for_any(events: Iterable[asyncio.Event], wait_s: float) -> None:
    """Wait for the first of these events, at most `wait_s`."""
    waits = [asyncio.ensure_future(each.wait()) for each in events]
    try:
        await asyncio.wait(waits, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _agent_of(conn: sa.Connection, call: Call, *, closed: bool = False) -> Agent | None:
    """Returns the agent as it is now; if it was deleted during the call, its snapshot, which is removed if the call is
    `closed`."""
    if call.agent_id is None:
        return None
    agent = agents.get(conn, call.organization_id, call.agent_id)
    if (
        agent is None
        and (agent := agents.snapshot_of_call(conn, call.organization_id, call.agent_id, call.id))
        and closed
    ):
        agents.drop_snapshot(conn, call.id)
    return agent


def _agent_at_beginning(conn: sa.Connection, call: Call) -> Agent | None:
    """Returns the agent with the fields of the version that the call has, if the version is still stored."""
    agent = _agent_of(conn, call)
    if agent is None or call.agent_version is None:
        return agent
    found = versions.get(conn, agent.id, call.agent_version)
    return agent if found is None else replace(agent, **found.fields.__dict__)


def _call_and_agent(conn: sa.Connection, call_id: str, unstored: Call | None) -> tuple[Call | None, Agent | None]:
    """Returns a call, as it is stored if it is, and its agent. No call: it was deleted with its organization, or by a
    client."""
    call = calls.get_by_id(conn, call_id) or unstored
    if call is None or organizations.get(conn, call.organization_id) is None:
        return None, None
    return call, _agent_at_beginning(conn, call)


def _add_missing_answer(conn: sa.Connection, call_id: str, outcome: CallOutcome, agent: Agent | None) -> bool:
    """Store the event of an answer that is stored with the end of the call only. Returns True if there is one."""
    if outcome.answered_at is None or calls.is_answered(conn, call_id):
        return False
    call = calls.get_by_id(conn, call_id)
    return call is not None and call_events.add_answered(conn, call, agent, outcome.answered_at)


def _store_pending(call_id: str, outcome: CallOutcome, agent: Agent | None, conn: sa.Connection) -> tuple[bool, bool]:
    """Store how the call ended; also of a call that another node has closed as `server_restart`. Returns False if it is
    closed already, and True if there may be a webhook."""
    is_pending, has_webhook = _store_open_pending(call_id, outcome, agent, conn)
    if not is_pending and _reopen(conn, call_id, outcome):
        return _store_open_pending(call_id, outcome, agent, conn)
    return is_pending, has_webhook


def _reopen(conn: sa.Connection, call_id: str, outcome: CallOutcome) -> bool:
    """Take back the end that another node has stored of a call of this one."""
    if outcome.reason == "server_restart" or late_end.reopen(conn, call_id) is None:
        return False
    log.info("call.end_corrected", call_id=call_id, reason=outcome.reason)
    return True


def _store_open_pending(
    call_id: str, outcome: CallOutcome, agent: Agent | None, conn: sa.Connection
) -> tuple[bool, bool]:
    for transfer_end in outcome.transfer_ends:
        transfer_end.write(conn)
    has_answer = _add_missing_answer(conn, call_id, outcome, agent)
    is_pending = pending_finalization.store(
        conn,
        call_id,
        PendingFinalization(outcome.status, outcome.reason, outcome.ended_at, outcome.usage.to_json()),
        answered_at=outcome.answered_at,
        transcript=outcome.transcript,
        timeline=outcome.timeline,
        recording=outcome.recorded,
        turn_count=outcome.turn_count,
        media_quality=outcome.media_quality,
        sip_end=outcome.sip_end,
    )
    return is_pending, has_answer or bool(outcome.transfer_ends)


def _outcome_of(call: Call, pending_end: PendingFinalization) -> CallOutcome:
    """The outcome that `_store_pending` stored."""
    return CallOutcome(
        status=pending_end.status,
        reason=pending_end.reason,
        ended_at=pending_end.ended_at,
        answered_at=call.started_at,
        transcript=call.transcript,
        timeline=call.timeline,
        turn_count=call.turn_count,
        recorded=call.recorded,
        media_quality=call.media_quality,
        sip_end=call.sip_end,
        usage=CallUsage.from_json(pending_end.usage),
    )


def _observe_journal(size: JournalSize) -> None:
    metrics.JOURNAL_CALLS.set(size.calls)
    metrics.JOURNAL_BYTES.set(size.bytes)


def _observe_analysis(call_id: str, analysis: Analysis, took_s: float) -> None:
    method, error = analysis.get("method"), analysis.get("error")
    metrics.ANALYSIS.labels(outcome="fell_back" if error else method).observe(took_s)
    log.info("call.analysed", call_id=call_id, method=method, error=error, took_s=round(took_s, 2))


def _observe(call: Call, usage: CallUsage) -> None:
    if not call.is_chat:
        metrics.ENDED_CALLS.labels(direction=call.direction, reason=call.ended_reason).inc()
        observe_usage(call, usage)
    log.info(
        "call.ended",
        call_id=call.id,
        status=call.status,
        reason=call.ended_reason,
        duration=call.duration_seconds,
        turns=call.turn_count,
        recorded=call.recorded,
        cost=call.cost,
        sip_status=call.sip_end["statusCode"] if call.sip_end else None,
    )
