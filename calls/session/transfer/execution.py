"""The execution of one transfer: by REFER where the number allows it, else by a child call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import sqlalchemy as sa
import structlog

from calls.call_record.end_reason import end_status_of, ended_reason_of_invite_error
from calls.call_record.outcome import CallOutcome, TransferEnd
from calls.outbound.dialer import OutboundDialer
from calls.session.agent_config import models_for
from calls.session.dependencies import CallDependencies
from calls.session.peer_reroute import ReroutePolicy
from calls.session.transfer.authorization import AuthorizedTransfer
from calls.session.transfer.briefing.briefing import Briefing
from calls.session.transfer.briefing.facts import CallFacts, call_facts, facts_of_order
from calls.session.transfer.briefing.model import BriefingWriter
from calls.session.transfer.caller_identity import second_leg_identity
from calls.session.transfer.child_call import ChildCall, UnplacedChildCall
from calls.session.transfer.cold_screening import ColdScreening
from calls.session.transfer.progress import TransferProgress
from calls.session.transfer.result import TransferResult, result_of_status
from calls.session.transfer.transferred_call import TransferredCall
from calls.webhooks import call_events
from config.clock import iso, utc_now
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import Leg, ReferTarget
from sipcore.dialogs.refer_client import ReferResult, is_ringing
from sipcore.messages.headers import HeaderLines
from sipcore.trunks.trunk_uris import refer_domain
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call, EndedReason
from storage.calls.transfers import TransferAttempt, TransferChanges
from storage.database.errors import StorageUnavailable
from storage.phone_numbers.phone_numbers import PhoneNumber

StoreChildEnd = Callable[[Sequence[TransferEnd]], Awaitable[None]]
"""Stores the end of a child call and the given writes in one transaction."""

log = structlog.get_logger()


class TransferExecution:
    """`run` executes a transfer. `cancelled` is done when the caller wants to stay with the agent. `connect` takes over
    the answered child call, and returns only by cancellation."""

    def __init__(
        self,
        parent: TransferredCall,
        authorized: AuthorizedTransfer,
        *,
        deps: CallDependencies,
        dialer: OutboundDialer,
        refer_timeout_s: float,
        cancelled: asyncio.Future[None],
        connect: Callable[[ChildCall], Awaitable[None]],
        progress: TransferProgress,
        children: MutableMapping[str, ChildCall | UnplacedChildCall],
    ) -> None:
        """`children`: the child calls in progress, by id."""
        self._parent = parent
        self._authorized = authorized
        self._transfer = authorized.transfer
        self._number = authorized.number
        self._progress = progress
        self._children = children
        self._deps = deps
        self._dialer = dialer
        self._refer_timeout_s = refer_timeout_s
        self._cancelled = cancelled
        self._connect = connect
        self.store_child_end: StoreChildEnd | None = None
        """Stores the end of the child call; None without one."""
        self.referring = False
        """A REFER is pending: a BYE of the peer may be the end of a completed transfer."""
        self._attempts: list[TransferAttempt] = []
        self._log = log.bind(call_id=parent.call.id, transfer_id=self._transfer.id)

    async def run(self) -> TransferResult:
        """Returns `completed` if the peer has taken the call by REFER, else why the transfer has not happened."""
        if self._may_refer and self._transfer.mode == "cold":
            result = await self._refer()
            if result is not None:
                return result
            if self._number.sip_transfer_method == "refer":
                return TransferResult("failed", self._attempts[-1]["sipStatus"], "REFER was refused or got no response")
        return await self._bridge()

    # ---- REFER ----

    @property
    def _may_refer(self) -> bool:
        """The number allows REFER, and the target is called through the trunk of the call's own number. A leg without
        SIP has none."""
        own_trunk = self._number.id == self._parent.call.phone_number_id
        return own_trunk and self._number.sip_transfer_method != "bridge" and isinstance(self._parent.leg, Leg)

    @property
    def _sip_leg(self) -> Leg:
        assert isinstance(self._parent.leg, Leg)
        return self._parent.leg

    async def _refer(self, child: ChildCall | None = None) -> TransferResult | None:
        """Refer the peer to the target, or to the child call, which it takes over (REFER with Replaces, RFC 5589).
        Returns None if it has not accepted, so that another method may follow."""
        attempt = self._begin_attempt()
        await self._set_refer_domain()
        replaces = None if child is None else child.leg
        target = ReferTarget(
            self._transfer.number,
            replaces=replaces,
            referred_by=self._number.number,
            headers=self._user_to_user(),
        )
        try:
            result = await self._send_refer_unless_cancelled(target, child)
        except ConnectionError as error:
            self._end_attempt(attempt, "failed")
            return TransferResult("failed", None, str(error))
        if result is None:
            self._end_attempt(attempt, "cancelled")
            return TransferResult("cancelled")
        self._log.info("transfer.refer_ended", outcome=result.kind, sip_status=result.sip_status)
        self._end_attempt(attempt, result.kind, result.sip_status)
        if result.kind != "completed" and self._parent.leg.ended.done():  # the caller has left
            return TransferResult("cancelled")
        match result.kind:
            case "completed":
                return TransferResult("completed", result.sip_status)
            case "target_failed" if child is None:
                return result_of_status(result.sip_status)
            case "no_response" if child is None and is_ringing(result.sip_status):  # the peer still calls the target
                return TransferResult("no_answer", detail="the peer reported no end of its call to the target")
            case _:
                return None

    async def _send_refer_unless_cancelled(self, target: ReferTarget, child: ChildCall | None) -> ReferResult | None:
        """Returns None if the caller wants to stay, or our side ends the child call, before the result is known. Raises
        `ConnectionError`."""
        referring = asyncio.ensure_future(self._send_refer(target))
        ends = (self._cancelled,) if child is None else (self._cancelled, child.ended_by_us)
        waited: tuple[asyncio.Future[Any], ...] = (referring, *ends)
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not referring.done():
                referring.cancel()
                await asyncio.wait((referring,))
        return None if referring.cancelled() else referring.result()

    async def _send_refer(self, target: ReferTarget) -> ReferResult:
        self.referring = True
        try:
            ring_timeout_s = self._deps.ring_timeout_s if target.replaces is None else 0  # else nobody is rung any more
            return await self._sip_leg.refer(target, self._refer_timeout_s, ring_timeout_s)
        finally:
            self.referring = False

    async def _set_refer_domain(self) -> None:
        """The target is dialled at the trunk, which may challenge the REFER of an inbound call, too."""
        if self._sip_leg.refer_domain is None:
            with contextlib.suppress(InviteError):  # else at the host of the peer
                self._sip_leg.refer_domain = refer_domain(await self._dialer.trunk(self._number))

    # ---- the child call ----

    async def _bridge(self) -> TransferResult:
        """Call the target and connect it with the caller. Returns why that was not possible."""
        placed = await self._place_unless_cancelled()
        if isinstance(placed, TransferResult):
            return placed
        child, accepted = placed, False
        try:
            result = await self._answer_and_screen(child)
            if result is not None:
                return result
            accepted = True
        except Exception as error:  # noqa: BLE001 - it ends the child call alone
            self._log.error("call.failed", call_id=child.call.id, error=repr(error), exc_info=error)
            child.lifecycle.end("error")
            return TransferResult("failed", None, "an error of the second leg")
        finally:
            if not accepted:
                await self._hang_up(child)
        await self._connect(child)
        raise AssertionError("a connected transfer ends with its call")

    async def _answer_and_screen(self, child: ChildCall) -> TransferResult | None:
        """Returns None once the child call is to be connected with the caller, else what came of it."""
        if self._transfer.mode == "cold":
            return await self._wait_and_screen(child, lambda: self._screen(child))
        parent, facts = self._parent, await self._call_facts(child)
        model, language = models_for(parent.agent, self._deps.models).llm, parent.agent.language_hint
        with closing(BriefingWriter(child.call.id, facts, model, parent.meter, language)) as writer:
            writer.start()
            briefing = partial(Briefing, parent, self._transfer, child, self._deps, self._cancelled, facts, writer)
            return await self._wait_and_screen(child, lambda: briefing().run())

    async def _call_facts(self, child: ChildCall) -> CallFacts:
        try:
            return await call_facts(self._parent, self._authorized)
        except Exception as error:  # noqa: BLE001 - the template is said instead
            self._log.error("transfer.facts_failed", call_id=child.call.id, error=repr(error), exc_info=error)
            return facts_of_order(self._parent, self._authorized)

    async def _wait_and_screen(
        self, child: ChildCall, screen: Callable[[], Awaitable[TransferResult | None]]
    ) -> TransferResult | None:
        """`screen`, which briefs the target of a warm transfer, once the child call is answered."""
        attempt, mode = len(self._attempts) - 1, self._transfer.mode
        result = await child.wait_answered(self._cancelled)
        if result is not None:
            self._end_attempt(attempt, result.attempt_outcome, result.sip_status)
            return result
        self._end_attempt(attempt, "answered", 200)
        self._store(answered_at=child.answered_at)
        if mode != "cold":
            self._store(status="briefing")
        result = await screen()
        if result is None and mode == "attended" and self._may_refer:
            with child.referred_to():
                result = await self._refer(child)
                if result is not None and result.status == "completed":
                    child.lifecycle.end("transferred")
            if result is None and child.has_been_silent:
                child.lifecycle.end("media_timeout")
                return TransferResult("failed", None, "no RTP came from the target during the REFER")
        if result is None and child.lifecycle.is_ending:
            return TransferResult("failed", None, "the target hung up before it was connected")
        return result

    async def _hang_up(self, child: ChildCall) -> None:
        """End the child call of a caller who is not connected with it."""
        child.lifecycle.end(self._our_reason)
        await child.hang_up()

    @property
    def _our_reason(self) -> EndedReason:
        """Why our side ends a child call that is not connected."""
        ending = self._parent.ending
        stops = ending.done() and ending.result() == "server_shutdown"
        return "server_shutdown" if stops else "agent_ended"

    async def _place_unless_cancelled(self) -> ChildCall | TransferResult:
        """`_place`; when the caller has left meanwhile, a child call that was placed all the same is ended."""
        placing = asyncio.ensure_future(self._place())
        try:
            return await asyncio.shield(placing)
        except asyncio.CancelledError:
            self._stop_placing()
            await asyncio.wait((placing,))
            placed = placing.result()
            if isinstance(placed, ChildCall):
                await self._hang_up(placed)
            raise

    async def _place(self) -> ChildCall | TransferResult:
        """Store the child call and send its INVITE, unless the call is ended before. Returns why that was not
        possible."""
        unplaced = self._children[self._transfer.id] = UnplacedChildCall()
        self._cancelled.add_done_callback(self._stop_placing)
        try:
            call = await self._create_child()
        except Exception as error:
            del self._children[self._transfer.id]
            unplaced.end_stored.set_result(None)
            if isinstance(error, StorageUnavailable):
                return TransferResult("failed", None, error.cause)
            raise
        self._deps.live_calls.begin(call)
        attempt = self._begin_attempt()
        try:
            leg = await self._dial(call, unplaced)
        except Exception as error:  # noqa: BLE001 - it ends the child call alone
            result = self._end_unplaced(call, unplaced, error)
            self._end_attempt(attempt, result.status)
            return result
        self._store(status="ringing")
        child = ChildCall(call, self._parent.agent, leg, self._deps, unplaced)
        self.store_child_end, self._children[call.id] = child.store_end, child
        return child

    def _stop_placing(self, *_: object) -> None:
        """End the child call, unless its INVITE has been sent."""
        unplaced = self._children.get(self._transfer.id)
        if isinstance(unplaced, UnplacedChildCall):
            unplaced.lifecycle.end(self._our_reason)

    async def _screen(self, child: ChildCall) -> TransferResult | None:
        parent = self._parent
        return await ColdScreening(parent.call, parent.agent, child, self._deps, self._cancelled).run()

    async def _create_child(self) -> Call:
        create = partial(
            store_child,
            agent=self._parent.agent,
            call_id=self._transfer.id,
            parent=self._parent.call,
            phone_number_id=self._number.id,
            provider=self._number.provider,
            customer_number=self._transfer.number,
        )
        call, has_event = await self._deps.database.write(create)
        if has_event:
            self._deps.webhook_queued()
        return call

    async def _dial(self, call: Call, unplaced: UnplacedChildCall) -> Leg:
        async def number() -> PhoneNumber:
            return self._number

        parent = self._parent
        with _first_end(parent.ending, unplaced.lifecycle.ending) as ending:
            return await self._dialer.dial_transfer(
                number,
                self._transfer.number,
                self._user_to_user(),
                ending,
                caller=second_leg_identity(parent.call, parent.leg.facts, self._number),
                follow=ReroutePolicy(call, self._number, self._deps.database, self._deps.aliases_of).authorize_redirect,
            )

    def _end_unplaced(self, call: Call, unplaced: UnplacedChildCall, error: Exception) -> TransferResult:
        """The INVITE could not be sent, or the call was ended before."""
        reason: EndedReason = "error"
        result = TransferResult("failed", None, str(error))
        if unplaced.lifecycle.is_ending or self._parent.ending.done():
            unplaced.lifecycle.end(self._our_reason)
            reason, result = unplaced.lifecycle.ending.result(), TransferResult("cancelled")
        elif isinstance(error, InviteError):
            self._log.warning("call.not_placed", why=error.detail, kind=error.kind)
            reason = ended_reason_of_invite_error(error.kind)
        else:
            self._log.error("call.failed", call_id=call.id, error=repr(error), exc_info=error)
        outcome = CallOutcome(status=end_status_of(reason, answered=False), reason=reason, ended_at=utc_now())

        async def store_end(transfer_ends: Sequence[TransferEnd]) -> None:
            ended = replace(outcome, transfer_ends=transfer_ends)
            await self._deps.finalizer.finish(call.id, ended, self._parent.agent)

        self.store_child_end = store_end
        return result

    # ---- what is stored ----

    def _user_to_user(self) -> HeaderLines:
        """The call id, so that the target's system can find the call (User-to-User, RFC 7433)."""
        return (("User-to-User", f"{self._parent.call.id.encode().hex()};encoding=hex"),)

    def _begin_attempt(self) -> int:
        self._attempts.append(
            TransferAttempt(
                number=self._transfer.number, startedAt=iso(utc_now()), endedAt=None, sipStatus=None, outcome=None
            )
        )
        self._store()
        return len(self._attempts) - 1

    def _end_attempt(self, index: int, outcome: str, sip_status: int | None = None) -> None:
        attempt = self._attempts[index]
        self._attempts[index] = {
            **attempt,
            "endedAt": iso(utc_now()),
            "sipStatus": sip_status or None,
            "outcome": outcome,
        }
        self._store()

    def close_attempts(self, outcome: str) -> None:
        """End the attempt that was interrupted, if there is one."""
        for index, attempt in enumerate(self._attempts):
            if attempt["endedAt"] is None:
                self._end_attempt(index, outcome)

    def _store(self, **changes: Unpack[TransferChanges]) -> None:
        changes["attempts"] = list(self._attempts)
        self._progress.store(**changes)


def store_child(conn: sa.Connection, agent: Agent, **fields: Any) -> tuple[Call, bool]:
    """Store a child call with the event of its start; `fields`: of `calls.create_child`. Returns the call, and True if
    there is an event."""
    call = calls.create_child(conn, **fields)
    return call, call_events.add_started(conn, call, agent, call.created_at)


@contextlib.contextmanager
def _first_end(*endings: asyncio.Future[EndedReason]) -> Iterator[asyncio.Future[EndedReason]]:
    """Inside of the context: done with the first of these."""
    first: asyncio.Future[EndedReason] = asyncio.get_running_loop().create_future()

    def take(ending: asyncio.Future[EndedReason]) -> None:
        if not first.done() and not ending.cancelled():
            first.set_result(ending.result())

    for each in endings:
        if each.done():
            take(each)
        else:
            each.add_done_callback(take)
    try:
        yield first
    finally:
        for each in endings:
            each.remove_done_callback(take)
