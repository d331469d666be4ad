"""A web call, which the API calls a test call: it waits for its browser, then runs as any other call, on a leg without
SIP."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from calls.call_record.end_reason import end_status_of
from calls.call_record.outcome import CallOutcome
from calls.session.call_session import CallSession
from calls.session.deferred_session import DeferredSession
from calls.session.dependencies import CallDependencies
from calls.session.lifecycle import CallLifecycle
from calls.session.transfer.call_transfers import TransferDependencies
from calls.web_call.live_feed import LiveFeed
from config.clock import utc_now
from config.errors import Conflict
from sipcore.dialogs.pcm_leg import PcmLeg
from storage.agents.agents import Agent
from storage.calls.calls import Call, EndedReason

CONNECT_TIMEOUT_S: Final = 60.0
"""Time for the browser to connect; then the call ends as `no_answer`."""

log = structlog.get_logger()


@dataclass(frozen=True)
class WebConnection:
    """A test call as its browser sees it: the audio and keys are the leg's, the messages those of the feed. `ended` has
    the reason once the call has ended."""

    leg: PcmLeg
    feed: LiveFeed
    ended: asyncio.Future[EndedReason]


class WebCall(DeferredSession):
    """`run` runs a test call that was stored until its end is stored; `end` ends it from outside; `connect` gives it
    its leg."""

    def __init__(
        self,
        call: Call,
        agent: Agent,
        deps: CallDependencies,
        transfer_dependencies: TransferDependencies | None,
        *,
        telephone: bool,
    ) -> None:
        super().__init__(call)
        self._transfer_dependencies = transfer_dependencies
        self.telephone: Final = telephone
        self._agent = agent
        self._deps = deps
        loop = asyncio.get_running_loop()
        self._lifecycle = CallLifecycle()
        self._feed = LiveFeed()
        self._connected: asyncio.Future[PcmLeg] = loop.create_future()
        self._ended: asyncio.Future[EndedReason] = loop.create_future()

    @property
    def has_leg(self) -> bool:
        """True once the browser has connected."""
        return self._connected.done()

    def end(self, reason: EndedReason) -> None:
        """End the call; the first reason counts."""
        self._lifecycle.end(reason)

    def connect(self, leg: PcmLeg) -> WebConnection:
        """The browser has connected, on this leg. Raises `Conflict` if the call has ended, or has a browser."""
        if self._lifecycle.is_ending or self._connected.done():
            raise Conflict("The call has ended, or another browser has it")
        self._connected.set_result(leg)
        self._feed.set_state("ringing")
        return WebConnection(leg, self._feed, self._ended)

    async def run(self) -> None:
        """Wait for the browser, run the session, store the end. Raises `StorageUnavailable` if the end could not be
        stored."""
        try:
            await asyncio.wait(
                (self._connected, self._lifecycle.ending),
                timeout=CONNECT_TIMEOUT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if self._connected.done():
                await self._run_session(self._connected.result())
            else:
                self.end("no_answer")
                await self._finish_unconnected(await self._lifecycle.ending)
        finally:
            self._feed.set_state("ended")
            self._ended.set_result(self._lifecycle.reason or "error")

    async def _run_session(self, leg: PcmLeg) -> None:
        log.info("call.web_connected", call_id=self.call.id, telephone=self.telephone)
        self.session = CallSession(
            call=self.call,
            agent=self._agent,
            number=None,
            leg=leg,
            deps=self._deps,
            lifecycle=self._lifecycle,
            transfer_dependencies=self._transfer_dependencies,
            observer=self._feed,
        )
        await self.session.run()

    async def _finish_unconnected(self, reason: EndedReason) -> None:
        outcome = CallOutcome(status=end_status_of(reason, answered=False), reason=reason, ended_at=utc_now())
        await self._deps.finalizer.finish(self.call.id, outcome, self._agent)
        self._lifecycle.mark_ended()
