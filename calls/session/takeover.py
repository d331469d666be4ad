"""A person takes a call over from its agent: their leg, on which they have come, is connected with the caller's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from calls.conversation.conversation import Conversation
from calls.session.client_hold import ClientHold
from calls.session.conversation_runner import CallParticipants
from calls.session.dependencies import CallDependencies
from calls.session.leg_hold_music import LegHoldMusic
from calls.session.lifecycle import CallLifecycle
from calls.session.rtp_timeout import wait_rtp_timeout
from calls.session.transfer.bridged_legs import ConnectedLeg, bridged
from calls.session.transfer.transcription import ConnectedTranscription
from config.errors import Conflict
from media.engine.call_audio import CallAudio, CallEvent
from media.turn_taking.settings import TurnSettings
from sipcore.audio.pump import Pump
from sipcore.dialogs.call_leg import CallLeg
from storage.calls.calls import Speaker

log = structlog.get_logger()


@dataclass(frozen=True)
class _Operator:
    name: str
    leg: CallLeg


class Takeover:
    """`join` makes the agent stop; then `run` connects the person with the caller until one of them hangs up."""

    def __init__(self, pump: Pump, lifecycle: CallLifecycle, deps: CallDependencies) -> None:
        """`lifecycle`: of the caller's call."""
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pump = pump
        self._lifecycle = lifecycle
        self._deps = deps
        self._operator: _Operator | None = None
        self._closed = False
        self._finishing: asyncio.Task[None] | None = None

    def join(self, leg: CallLeg, name: str) -> None:
        """The person of this name has come on this leg, which has audio; the takeover owns it from now on. Raises
        `Conflict` if the call ends, or another person has come."""
        if self._closed or self._operator is not None:
            raise Conflict("The call has ended, or another person has taken it over")
        self._operator = _Operator(name, leg)
        self.joined.set_result(None)

    async def run(
        self, caller: ConnectedLeg, audio: CallAudio, participants: CallParticipants, conversation: Conversation
    ) -> None:
        """Connect the caller with the person who has joined, until either hangs up or sends nothing any more. `audio`
        is the caller's. The agent may transcribe both, as a continuation of its `conversation`, which is over."""
        operator, agent = self._operator, participants.agent
        assert operator is not None
        leg, call_id = operator.leg, participants.call.id
        audio.playout.flush()
        audio.monitor = None
        audio.set_listening(False)
        caller.hold.set(False)
        if not agent.record_after_transfer:
            audio.stop_recording()
        conversation.timeline.set_taken_over(operator.name)
        log.info("call.taken_over", call_id=call_id, by=operator.name)
        music = LegHoldMusic(self._deps.hold_music, leg, agent, call_id)
        target = ConnectedLeg(call_id, leg, music, ClientHold(call_id, music))
        try:
            with self._audio_of(leg) as operator_audio:
                parties: Mapping[Speaker, CallAudio] = {"caller": audio, "target": operator_audio}
                async with bridged(self._pump, caller, target) as bridge:
                    transcription = ConnectedTranscription(
                        participants, self._deps, conversation, parties, is_heard=lambda: bridge.is_open
                    )
                    with self._transcribed(transcription, on=agent.stay_on_call):
                        await self._wait_end(caller, leg)
        finally:
            await music.close()

    async def close(self) -> None:
        """The call ends: the person's leg, too."""
        self._closed = True
        if self._operator is not None:
            await self._operator.leg.hangup(0)
            self._operator.leg.release()

    async def wait_transcribed(self) -> None:
        """Wait for the last words, for a second at most. The call was hung up."""
        if self._finishing is not None:
            await asyncio.wait((self._finishing,))

    @contextmanager
    def _audio_of(self, leg: CallLeg) -> Iterator[CallAudio]:
        """The leg's audio in the engine, which takes what has come."""
        media = leg.media
        if media is None:
            raise ConnectionError("the leg has no audio")
        audio = self._deps.engine.add(media.slot, TurnSettings(), _IgnoredEvents())
        audio.set_listening(False)
        try:
            yield audio
        finally:
            self._deps.engine.remove(media.slot)

    @contextmanager
    def _transcribed(self, transcription: ConnectedTranscription, *, on: bool) -> Iterator[None]:
        if not on:
            yield
            return
        transcription.start()
        try:
            yield
        finally:
            transcription.stop()
            self._finishing = asyncio.create_task(transcription.finish())

    async def _wait_end(self, caller: ConnectedLeg, leg: CallLeg) -> None:
        """Wait until the call is to end, or the person leaves: that ends the call by our side."""
        watchers = [asyncio.create_task(self._watch_rtp(each, caller)) for each in (caller.leg, leg)]
        waited: tuple[asyncio.Future[Any], ...] = (self._lifecycle.ending, leg.ended)
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.wait(watchers)
        self._lifecycle.end("agent_ended")

    async def _watch_rtp(self, leg: CallLeg, caller: ConnectedLeg) -> None:
        with contextlib.suppress(KeyError):  # the leg has ended
            await wait_rtp_timeout(leg, self._deps.rtp_timeout_s, lambda: caller.hold.is_on)
            self._lifecycle.end("media_timeout")


class _IgnoredEvents:
    """The listener of a leg that is not listened to."""

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """Ignores them."""
