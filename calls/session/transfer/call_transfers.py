"""The transfers of one call, one after another: authorized, then by REFER, by a bridged child call, or both in turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
import structlog

from calls import metrics
from calls.call_record.metering import UsageMeter
from calls.call_record.outcome import TransferEnd
from calls.conversation.conversation import Conversation
from calls.conversation.transfers import TransferReport
from calls.outbound.dialer import OutboundDialer
from calls.session.client_hold import ClientHold
from calls.session.conversation_runner import CallParticipants
from calls.session.dependencies import CallDependencies
from calls.session.leg_hold_music import LegHoldMusic
from calls.session.lifecycle import CallLifecycle
from calls.session.rtp_timeout import wait_rtp_timeout
from calls.session.transfer.authorization import (
    AuthorizedTransfer,
    CheckCapacity,
    authorize_transfer,
    find_target,
)
from calls.session.transfer.bridged_legs import ConnectedLeg, bridged
from calls.session.transfer.child_call import ChildCall, UnplacedChildCall
from calls.session.transfer.execution import StoreChildEnd, TransferExecution
from calls.session.transfer.progress import TransferProgress
from calls.session.transfer.report import report_refusal, report_result
from calls.session.transfer.result import TransferResult
from calls.session.transfer.transcription import ConnectedTranscription
from calls.session.transfer.transferred_call import TransferredCall
from config.clock import utc_now
from config.errors import Conflict, TrunklineError
from media.engine.call_audio import CallAudio
from sipcore.audio.pump import Pump
from sipcore.dialogs.call_leg import CallLeg
from storage.agents.agents import Agent
from storage.calls.calls import Call, EndedReason, TranscriptItem
from storage.calls.transfers import Transfer, TransferOrder

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class TransferDependencies:
    """Dependencies of transfers besides `CallDependencies`. `check_capacity` raises if there is no place for one more
    call; `refer_timeout_s`: time until the final status of a REFER. `children` has the child calls in progress by id;
    `on_end_lost` is called with the id of one whose end could not be stored."""

    dialer: OutboundDialer
    pump: Pump
    check_capacity: CheckCapacity
    refer_timeout_s: float
    children: MutableMapping[str, ChildCall | UnplacedChildCall]
    on_end_lost: Callable[[str], None]


@dataclass(frozen=True)
class StartedTransfer:
    """A transfer, and what stores its progress."""

    transfer: Transfer
    progress: TransferProgress


@dataclass(frozen=True)
class ConnectedTransfer(StartedTransfer):
    """A child call that was answered and is to be connected with the caller."""

    child: ChildCall


class CallTransfers:
    """`run` transfers the call, and returns only if the caller stays with the agent. `connected` is done when the
    caller is to be connected with a child call; then `run_connected` connects them until one of them hangs up."""

    def __init__(
        self,
        *,
        call: Call,
        agent: Agent,
        leg: CallLeg,
        music: LegHoldMusic,
        hold: ClientHold,
        lifecycle: CallLifecycle,
        meter: UsageMeter,
        deps: CallDependencies,
        transfer_dependencies: TransferDependencies,
        transcript: Callable[[], Sequence[TranscriptItem]],
        on_transfer: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """`meter`: of the caller's call. `transcript` returns that of the caller's conversation so far. `on_transfer`
        is called when a transfer begins, and when the caller is back with the agent."""
        self.connected: asyncio.Future[ConnectedTransfer] = asyncio.get_running_loop().create_future()
        self._call = call
        self._agent = agent
        self._leg = leg
        self._music = music
        self._hold = hold
        self._lifecycle = lifecycle
        self._meter = meter
        self._deps = deps
        self._transfer_dependencies = transfer_dependencies
        self._transcript = transcript
        self._on_transfer = on_transfer
        self._is_connected = False
        """`run_connected` has taken the child call over."""
        self._accepted: dict[TransferOrder, AuthorizedTransfer] = {}
        self._cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the caller wants to stay with the agent; each transfer has its own."""
        self._execution: TransferExecution | None = None
        self._peer_end: EndedReason | None = None
        self._tried: set[str] = set()
        """The names of the targets that were tried, without case."""
        self.ends: list[TransferEnd] = []
        """The ends of the transfers that have ended."""
        self._storing: set[asyncio.Task[None]] = set()
        """Store the ends of child calls."""
        self._progresses: list[TransferProgress] = []
        self._closed = False
        self._log = log.bind(call_id=call.id)

    async def accept(self, order: TransferOrder) -> Transfer:
        """Authorize and store a transfer, which `run` executes. Raises `Invalid`, `Conflict` and the errors of outbound
        calls."""
        target = find_target(self._agent.transfer_targets, order.target)
        if not self._lifecycle.is_active or self.connected.done():
            raise Conflict("The call is not in progress with the agent")
        authorize = partial(
            authorize_transfer,
            call=self._call,
            target=target,
            order=order,
            check_capacity=self._transfer_dependencies.check_capacity,
            policy=self._transfer_dependencies.dialer.trunk_policy,
        )

        def store_ends_and_authorize(conn: sa.Connection) -> AuthorizedTransfer | TrunklineError:
            for end in self.ends:
                end.write(conn)
            return authorize(conn)

        authorized = await self._deps.database.write(store_ends_and_authorize)
        if isinstance(authorized, TrunklineError):
            raise authorized
        if self._closed:
            self._cancel_accepted(authorized)
            raise Conflict("The call has ended")
        self._accepted[order] = authorized
        return authorized.stored

    async def close(self) -> None:
        """The call ends: transfers that were accepted and have not begun are cancelled, and an answered child call that
        was not connected ends, because the conversation has failed."""
        self._closed = True
        while self._accepted:
            self._cancel_accepted(self._accepted.popitem()[1])
        if self.connected.done() and not self._is_connected:
            connected = self.connected.result()
            await self._hang_up(connected.child)
            self._end(connected, TransferResult("failed"), connected.child.store_end)

    @property
    def ids(self) -> list[str]:
        """The ids of the transfers, which are those of their child calls."""
        return [progress.transfer_id for progress in self._progresses]

    async def wait_stored(self) -> None:
        """Wait until the ends of all transfers and child calls are stored, or could not be. The call was hung up."""
        for progress in self._progresses:
            await progress.wait_stored()
        while self._storing:
            await asyncio.wait(set(self._storing))

    def _cancel_accepted(self, authorized: AuthorizedTransfer) -> None:
        self._end(self._started(authorized.transfer), TransferResult("cancelled"))

    def _started(self, transfer: Transfer) -> StartedTransfer:
        started = StartedTransfer(transfer, TransferProgress(self._deps, transfer, self._call, self._agent))
        self._progresses.append(started.progress)
        return started

    def cancel(self) -> None:
        """The caller wants to stay with the agent."""
        if not self._cancelled.done():
            self._cancelled.set_result(None)

    def defer_end(self, reason: EndedReason) -> bool:
        """The peer has ended the call. Returns True if a REFER is pending: then its result, which follows within a
        second, decides whether the call was transferred, and the call ends after it."""
        if self._execution is None or not self._execution.referring:
            return False
        self._peer_end = reason
        return True

    async def run(self, order: TransferOrder) -> TransferReport:
        """Transfer the call. Returns what came of it if the caller stays with the agent. Cancellation ends the
        transfer."""
        self._cancelled = asyncio.get_running_loop().create_future()
        self._tried.add(order.target.strip().casefold())
        try:
            if order not in self._accepted:
                await self.accept(order)
        except TrunklineError as error:
            report = report_refusal(error, order.target, self._untried_targets, self._agent.language_hint)
            self._log.warning("transfer.refused", target=order.target, why=report.for_model)
            return report
        authorized = self._accepted.pop(order)
        started = self._started(authorized.transfer)
        transfer = authorized.transfer
        if self._cancelled.done():  # while it was authorized
            self._end(started, TransferResult("cancelled"))
            return self._report(transfer, TransferResult("cancelled"))
        self._log.info("transfer.started", transfer_id=transfer.id, target=transfer.target_name, mode=transfer.mode)
        self._execution = execution = TransferExecution(
            TransferredCall(
                call=self._call,
                agent=self._agent,
                leg=self._leg,
                meter=self._meter,
                ending=self._lifecycle.ending,
                transcript=self._transcript(),
            ),
            authorized,
            deps=self._deps,
            dialer=self._transfer_dependencies.dialer,
            refer_timeout_s=self._transfer_dependencies.refer_timeout_s,
            cancelled=self._cancelled,
            connect=partial(self._connect, started),
            progress=started.progress,
            children=self._transfer_dependencies.children,
        )
        result = TransferResult("cancelled")
        self._on_transfer(True)
        try:
            with self._hold_music():
                result = await execution.run()
        except Exception as error:  # noqa: BLE001 - it ends the transfer, and not the caller's call
            self._log.error("transfer.broken", transfer_id=transfer.id, error=repr(error), exc_info=error)
            result = TransferResult("failed", detail=repr(error))
        finally:
            if not self.connected.done():
                if self._peer_end is not None and result.status == "failed":  # the caller hung up during the REFER
                    result = TransferResult("cancelled")
                execution.close_attempts(result.status)
                self._end(started, result, execution.store_child_end)
        if result.status == "completed":  # the PBX has connected them
            _observe_connection(transfer)
        if result.status == "completed" or self._peer_end is not None:
            self._lifecycle.end("transferred" if result.status == "completed" else self._peer_end or "error")
            await asyncio.get_running_loop().create_future()  # the end of the call cancels this
        self._on_transfer(False)
        return self._report(transfer, result)

    def _report(self, transfer: Transfer, result: TransferResult) -> TransferReport:
        return report_result(result, transfer.target_name, self._untried_targets, self._agent.language_hint)

    @property
    def _untried_targets(self) -> list[str]:
        """The names of the agent's targets that no transfer of this call was for, in order."""
        names = [target["name"] for target in self._agent.transfer_targets]
        return [name for name in names if name.casefold() not in self._tried]

    @contextmanager
    def _hold_music(self) -> Iterator[None]:
        """Play the agent's hold music to the caller for the duration of the block."""
        self._music.set("transfer", True)
        try:
            yield
        finally:
            self._music.set("transfer", False)

    async def _connect(self, started: StartedTransfer, child: ChildCall) -> None:
        """Hand the answered child call over to `run_connected`, for which the conversation is cancelled."""
        self.connected.set_result(ConnectedTransfer(started.transfer, started.progress, child))
        await asyncio.get_running_loop().create_future()

    async def run_connected(self, audio: CallAudio, participants: CallParticipants, conversation: Conversation) -> None:
        """Connect the caller with the child call until either hangs up, or no RTP comes from one of them. `audio` is
        the caller's. The agent may transcribe both, as a continuation of its `conversation`, which is over."""
        connected = self.connected.result()
        child, self._is_connected = connected.child, True
        audio.playout.flush()
        audio.monitor = None  # answer detection of a call that the server has placed
        audio.set_listening(False)
        result = TransferResult("cancelled")
        try:
            if self._lifecycle.is_ending:  # meanwhile
                return
            result = TransferResult("failed")
            child_audio = child.open_audio()
            if not self._agent.record_after_transfer:
                audio.stop_recording()
                child_audio.stop_recording()
            caller = ConnectedLeg(self._call.id, self._leg, self._music, self._hold)
            target = ConnectedLeg(child.call.id, child.leg, child.music, child.hold)
            async with bridged(self._transfer_dependencies.pump, caller, target) as bridge:
                result = TransferResult("completed")
                stored = connected.progress.store(status="connected", connected_at=utc_now())
                stored.add_done_callback(partial(self._log_connected, connected.transfer))
                _observe_connection(connected.transfer)
                transcription = ConnectedTranscription(
                    participants,
                    self._deps,
                    conversation,
                    {"caller": audio, "target": child_audio},
                    is_heard=lambda: bridge.is_open,
                )
                with self._transcribed(transcription) if self._agent.stay_on_call else nullcontext():
                    await self._wait_connected_end(child)
        except Exception:
            child.lifecycle.end("error")
            raise
        finally:
            await self._hang_up(child)
            self._end(connected, result, child.store_end)

    @contextmanager
    def _transcribed(self, transcription: ConnectedTranscription) -> Iterator[None]:
        """Transcribe for the duration of the block. No leg waits for the last words."""
        transcription.start()
        try:
            yield
        finally:
            transcription.stop()
            finishing = asyncio.create_task(transcription.finish())
            self._storing.add(finishing)
            finishing.add_done_callback(self._storing.discard)

    def _log_connected(self, transfer: Transfer, _: asyncio.Task[None]) -> None:
        self._log.info("transfer.connected", transfer_id=transfer.id)

    async def _wait_connected_end(self, child: ChildCall) -> None:
        """Wait until a leg ends or has no RTP any more, and end the other one."""
        watchers = [
            asyncio.create_task(self._watch_rtp(self._leg, self._hold, self._lifecycle.end)),
            asyncio.create_task(self._watch_rtp(child.leg, child.hold, child.lifecycle.end)),
        ]
        try:
            await asyncio.wait((self._lifecycle.ending, child.lifecycle.ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.wait(watchers)
        if child.lifecycle.is_ending:
            self._lifecycle.end("transferred")
        child.lifecycle.end("server_shutdown" if self._server_stops else "transferred")

    @property
    def _server_stops(self) -> bool:
        return self._lifecycle.reason == "server_shutdown"

    async def _hang_up(self, child: ChildCall) -> None:
        """End a child call, unless it has ended: by our side."""
        child.lifecycle.end("server_shutdown" if self._server_stops else "agent_ended")
        await child.hang_up()

    async def _watch_rtp(self, leg: CallLeg, hold: ClientHold, end: Callable[[EndedReason], None]) -> None:
        with contextlib.suppress(KeyError):  # the leg has ended
            await wait_rtp_timeout(leg, self._deps.rtp_timeout_s, lambda: hold.is_on)
            end("media_timeout")

    def _end(self, started: StartedTransfer, result: TransferResult, store_child: StoreChildEnd | None = None) -> None:
        """Store the end of a transfer, and that of its child call, in the background: no leg waits for it."""
        transfer, progress = started.transfer, started.progress
        metrics.TRANSFERS.labels(mode=transfer.mode, status=result.status).inc()
        self._log.info(
            "transfer.ended",
            transfer_id=transfer.id,
            status=result.status,
            sip_status=result.sip_status,
            why=result.detail,
        )
        progress.store(
            status=result.status,
            sip_status=result.sip_status,
            decline_reason=result.decline_reason,
            ended_at=utc_now(),
        )
        self.ends.append(progress)
        if store_child is not None:
            task = asyncio.create_task(self._store_child_end(transfer.id, store_child, progress))
            self._storing.add(task)
            task.add_done_callback(self._storing.discard)

    async def _store_child_end(self, call_id: str, store: StoreChildEnd, transfer_end: TransferEnd) -> None:
        try:
            await store((transfer_end,))
        except Exception as error:  # noqa: BLE001 - the caller's call goes on
            log.error("call.end_lost", call_id=call_id, error=repr(error), remedy="closed at the next start")
            self._transfer_dependencies.on_end_lost(call_id)
        finally:
            self._deps.live_calls.end(call_id)
            child = self._transfer_dependencies.children.pop(call_id, None)
            if child is not None:
                child.end_stored.set_result(None)
                if self._deps.sip_traces is not None and isinstance(child, ChildCall):
                    self._deps.sip_traces.on_call_ended(call_id)


def _observe_connection(transfer: Transfer) -> None:
    """Count the time until the caller and the target hear each other."""
    waited_s = max((utc_now() - transfer.created_at).total_seconds(), 0.0)
    metrics.TRANSFER_CONNECT.labels(mode=transfer.mode).observe(waited_s)
