"""The transfers of one call, one after another: authorized, then by REFER, by a bridged child call, or both in turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import structlog

from calls import metrics
from calls.call_record.end_reason import q850_cause_of
from calls.conversation.transfers import TransferReport
from calls.outbound.dialer import OutboundDialer
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
from calls.session.transfer.child_call import ChildCall
from calls.session.transfer.execution import TransferExecution, TransferredCall
from calls.session.transfer.progress import store_transfer
from calls.session.transfer.report import report_refusal, report_result
from calls.session.transfer.result import TransferResult
from config.clock import utc_now
from config.errors import Conflict, TrunklineError
from media.engine.call_audio import CallAudio
from sipcore.audio.pump import Pump
from sipcore.dialogs.leg import Leg
from storage.agents.agents import Agent
from storage.calls.calls import Call, EndedReason
from storage.calls.transfers import Transfer, TransferOrder

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class TransferDependencies:
    """Dependencies of transfers besides `CallDependencies`. `check_capacity` raises if there is no place for one more
    call; `refer_timeout_s`: time until the final status of a REFER."""

    dialer: OutboundDialer
    pump: Pump
    check_capacity: CheckCapacity
    refer_timeout_s: float = 30.0


@dataclass(frozen=True)
class ConnectedTransfer:
    """A child call that was answered and is to be connected with the caller."""

    transfer: Transfer
    child: ChildCall


class CallTransfers:
    """`run` transfers the call, and returns only if the caller stays with the agent. `connected` is done when the
    caller is to be connected with a child call; then `run_connected` connects them until one of them hangs up."""

    def __init__(
        self,
        *,
        call: Call,
        agent: Agent,
        leg: Leg,
        music: LegHoldMusic,
        lifecycle: CallLifecycle,
        deps: CallDependencies,
        transfer_dependencies: TransferDependencies,
    ) -> None:
        self.connected: asyncio.Future[ConnectedTransfer] = asyncio.get_running_loop().create_future()
        self._call = call
        self._agent = agent
        self._leg = leg
        self._music = music
        self._lifecycle = lifecycle
        self._deps = deps
        self._transfer_dependencies = transfer_dependencies
        self._is_connected = False
        """`run_connected` has taken the child call over."""
        self._accepted: dict[TransferOrder, AuthorizedTransfer] = {}
        self._cancelled: asyncio.Future[None] | None = None
        self._execution: TransferExecution | None = None
        self._peer_end: EndedReason | None = None
        self._tried: set[str] = set()
        """The names of the targets that were tried, without case."""
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
        authorized = await self._deps.database.write(authorize)
        if isinstance(authorized, TrunklineError):
            raise authorized
        self._accepted[order] = authorized
        return authorized.stored

    async def close(self) -> None:
        """The call ends: transfers that were accepted and have not begun are cancelled, and an answered child call that
        was not connected ends, because the conversation has failed."""
        while self._accepted:
            _, authorized = self._accepted.popitem()
            await self._finish(authorized.transfer, TransferResult("cancelled"))
        if self.connected.done() and not self._is_connected:
            connected = self.connected.result()
            await connected.child.finish()
            await self._finish(connected.transfer, TransferResult("failed"))

    def cancel(self) -> None:
        """The caller wants to stay with the agent."""
        if self._cancelled is not None and not self._cancelled.done():
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
        self._tried.add(order.target.strip().casefold())
        try:
            if order not in self._accepted:
                await self.accept(order)
        except TrunklineError as error:
            report = report_refusal(error, order.target, self._untried_targets, self._agent.language_hint)
            self._log.warning("transfer.refused", target=order.target, why=report.for_model)
            return report
        authorized = self._accepted.pop(order)
        transfer, self._cancelled = authorized.transfer, asyncio.get_running_loop().create_future()
        self._log.info("transfer.started", transfer_id=transfer.id, target=transfer.target_name, mode=transfer.mode)
        self._execution = TransferExecution(
            TransferredCall(call=self._call, agent=self._agent, leg=self._leg, ending=self._lifecycle.ending),
            authorized,
            deps=self._deps,
            dialer=self._transfer_dependencies.dialer,
            refer_timeout_s=self._transfer_dependencies.refer_timeout_s,
            cancelled=self._cancelled,
            connect=partial(self._connect, transfer),
        )
        result = TransferResult("cancelled")
        try:
            with self._hold_music():
                result = await self._execution.run()
        except Exception as error:  # noqa: BLE001 - it ends the transfer, and not the caller's call
            self._log.error("transfer.broken", transfer_id=transfer.id, error=repr(error), exc_info=error)
            result = TransferResult("failed", detail=repr(error))
        finally:
            if not self.connected.done():
                await self._finish(transfer, result)
        if result.status == "completed":  # the PBX has connected them
            _observe_connection(transfer)
        if result.status == "completed" or self._peer_end is not None:
            self._lifecycle.end("transferred" if result.status == "completed" else self._peer_end or "error")
            await asyncio.get_running_loop().create_future()  # the end of the call cancels this
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

    async def _connect(self, transfer: Transfer, child: ChildCall) -> None:
        """Hand the answered child call over to `run_connected`, for which the conversation is cancelled."""
        self.connected.set_result(ConnectedTransfer(transfer, child))
        await asyncio.get_running_loop().create_future()

    async def run_connected(self, audio: CallAudio) -> None:
        """Connect the caller with the child call until either hangs up, or no RTP comes from one of them."""
        connected = self.connected.result()
        child, self._is_connected = connected.child, True
        audio.playout.flush()
        audio.set_listening(False)
        child_music = LegHoldMusic(self._deps.hold_music, child.leg, self._agent, child.call.id)
        try:
            child_audio = child.open_audio()
            if not self._agent.record_after_transfer:
                audio.stop_recording()
                child_audio.stop_recording()
            caller = ConnectedLeg(self._call.id, self._leg, self._music)
            target = ConnectedLeg(child.call.id, child.leg, child_music)
            async with bridged(self._transfer_dependencies.pump, caller, target):
                await store_transfer(self._deps, connected.transfer, status="connected", connected_at=utc_now())
                _observe_connection(connected.transfer)
                self._log.info("transfer.connected", transfer_id=connected.transfer.id)
                await self._wait_connected_end(child)
        finally:
            await child_music.close()
            await child.hang_up()
            await self._finish(connected.transfer, TransferResult("completed"))  # before the child's webhook is stored
            await child.finish()

    async def _wait_connected_end(self, child: ChildCall) -> None:
        """Wait until a leg ends or has no RTP any more, and end the other one."""
        watchers = [
            asyncio.create_task(self._watch_rtp(self._leg, self._lifecycle.end)),
            asyncio.create_task(self._watch_rtp(child.leg, child.lifecycle.end)),
        ]
        try:
            await asyncio.wait((self._lifecycle.ending, child.lifecycle.ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.wait(watchers)
        if child.lifecycle.is_ending:
            self._lifecycle.end("transferred")
        child.lifecycle.end("transferred")
        await self._leg.hangup(q850_cause_of(self._lifecycle.reason))  # before the end of the child call is stored

    async def _watch_rtp(self, leg: Leg, end: Callable[[EndedReason], None]) -> None:
        with contextlib.suppress(KeyError):  # the leg has ended
            await wait_rtp_timeout(leg, self._deps.rtp_timeout_s)
            end("media_timeout")

    async def _finish(self, transfer: Transfer, result: TransferResult) -> None:
        metrics.TRANSFERS.labels(mode=transfer.mode, status=result.status).inc()
        self._log.info(
            "transfer.ended",
            transfer_id=transfer.id,
            status=result.status,
            sip_status=result.sip_status,
            why=result.detail,
        )
        await store_transfer(
            self._deps,
            transfer,
            status=result.status,
            sip_status=result.sip_status,
            decline_reason=result.decline_reason,
            ended_at=utc_now(),
        )


def _observe_connection(transfer: Transfer) -> None:
    """Count the time until the caller and the target hear each other."""
    waited_s = max((utc_now() - transfer.created_at).total_seconds(), 0.0)
    metrics.TRANSFER_CONNECT.labels(mode=transfer.mode).observe(waited_s)
