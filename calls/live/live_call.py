"""The state of one call while it is live, as clients see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from calls.call_record.finished_turn import FinishedTurn
from calls.call_record.outcome import CallOutcome
from calls.call_record.timeline import Timeline, ToolRun
from calls.conversation.dtmf_collector import DtmfEntry
from calls.conversation.event_queue import ConversationEvent
from calls.conversation.idle_timer import HoldChanged
from calls.live.events import EventName, LiveEvents
from config.clock import utc_now
from media.turn_taking.events import AgentStarted, AgentStopped, BargeIn, SpeechStarted, TurnDropped, TurnEnded
from sipcore.audio.call_quality import CallQuality
from sipcore.dialogs.call_leg import CallLeg
from storage.calls.calls import Call, CallRow, seconds_between
from storage.calls.transfers import Transfer

LiveState = Literal[
    "queued", "ringing", "listening", "thinking", "speaking", "tool", "on_hold", "transferring", "ended"
]
ConversationState = Literal["listening", "thinking", "speaking", "tool"]
PARTIAL_EVERY_S: Final = 1.0
"""Between two events for words of an unfinished turn."""
MAX_PARTIAL: Final = 500
"""Characters of an unfinished turn that are told: the last ones."""


@dataclass(frozen=True)
class AudioQuality:
    """Loss, 0..1, and mean opinion score of both directions so far; None where it is not known."""

    loss: float | None = None
    mos: float | None = None
    sent_loss: float | None = None
    sent_mos: float | None = None

    @classmethod
    def of(cls, quality: CallQuality) -> AudioQuality:
        """Returns the figures, rounded as clients see them."""
        received, sent = quality.received, quality.sent
        return cls(
            round(received.loss, 4),
            None if received.mos is None else round(received.mos, 1),
            None if sent is None else round(sent.loss, 4),
            None if sent is None or sent.mos is None else round(sent.mos, 1),
        )


@dataclass(frozen=True)
class LiveDetails:
    """What is known of a live call besides its row. `response_gap_ms` is that of the latest turn that has one;
    `partial_transcript` has the words of the caller's unfinished turn."""

    state: LiveState
    duration_s: int | None = None
    response_gap_ms: int | None = None
    partial_transcript: str | None = None
    quality: AudioQuality = AudioQuality()


@dataclass(frozen=True)
class CallNews:
    """A call as it is now; without details it has ended."""

    call: CallRow
    details: LiveDetails | None


@dataclass(frozen=True)
class TurnNews:
    """A finished turn, its words redacted, and the times of the timeline's newest entry."""

    call_id: str
    sequence: int
    turn: FinishedTurn
    times: Mapping[str, Any]


@dataclass(frozen=True)
class TransferNews:
    """A transfer of a call, with its child call, if that is known."""

    transfer: Transfer
    child: Call | None = None


class LiveCall:
    """A `CallObserver` that knows the state of its call, and publishes each change. For the event loop, except
    `details` and `on_partial_transcript`."""

    def __init__(self, call: Call, events: LiveEvents) -> None:
        self.call = call
        """The row of the call as far as it is known here."""
        self.leg: CallLeg | None = None
        self.ended = False
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._conversation: ConversationState = "listening"
        self._held = False
        self._tools_running = 0
        self._transferring = False
        self._gap_ms: int | None = None
        self._partial: str | None = None
        self._partial_at_s = float("-inf")
        self._tells_partials = False
        self._quality = AudioQuality()

    @property
    def state(self) -> LiveState:
        """The state of the call."""
        match self.call.status:
            case "queued" | "ringing" as state:
                return "ended" if self.ended else state
            case "in_progress" if not self.ended:
                if self._transferring:
                    return "transferring"
                return "on_hold" if self._held else self._conversation
            case _:
                return "ended"

    def details(self) -> LiveDetails:
        """The state with what belongs to it. Any thread."""
        started_at = self.call.started_at
        return LiveDetails(
            state=self.state,
            duration_s=None if started_at is None else seconds_between(started_at, utc_now()),
            response_gap_ms=self._gap_ms,
            partial_transcript=self._partial,
            quality=self._measured(),
        )

    def on_row(self, call: Call) -> None:
        """What is stored of the call has changed."""
        self.call = replace(call, status=self.call.status, started_at=self.call.started_at)

    def on_ringing(self) -> None:
        """The other side rings."""
        if self.call.status == "queued":
            self.call = replace(self.call, status="ringing")
            self.publish()

    def on_answered(self, at: datetime, leg: CallLeg) -> None:
        """The call was answered; its audio can be measured from now on."""
        self.leg = leg
        if self.call.status in ("queued", "ringing"):
            self.call = replace(self.call, status="in_progress", started_at=at)
            self.publish()

    def on_transfer_status(self, transfer: Transfer) -> None:
        """A transfer of the call has begun, or has another status."""
        self.call = replace(self.call, transfer_type=transfer.mode, transfer_status=transfer.status)
        self.publish()

    def allow_partials(self) -> None:
        """The words of unfinished turns may be told, because the organization redacts nothing."""
        self._tells_partials = True

    def on_event(self, event: ConversationEvent) -> None:
        """See `CallObserver`."""
        match event:
            case SpeechStarted() | AgentStopped() | TurnDropped() | BargeIn():
                self._change(conversation="listening")
            case TurnEnded() | DtmfEntry():
                self._change(conversation="thinking")
            case AgentStarted():
                self._change(conversation="speaking")
            case HoldChanged(held):
                self._change(held=held)
            case _:
                pass

    def on_tool(self, use: ToolRun) -> None:
        """See `CallObserver`."""
        self._tools_running += 1 if use.end_ms is None else -1
        if self._conversation in ("thinking", "tool"):
            self._change(conversation="tool" if self._tools_running else "thinking")

    def on_transfer(self, on: bool) -> None:
        """See `CallObserver`."""
        self._change(transferring=on, conversation="thinking")

    def on_turn(self, turn: FinishedTurn, timeline: Timeline) -> None:
        """See `CallObserver`."""
        if turn.role == "user" and turn.speaker is None:
            self.call = replace(self.call, turn_count=self.call.turn_count + 1)
        gap_ms = timeline.turn.gap_ms
        if gap_ms is not None:
            self._gap_ms = round(gap_ms)
        self._partial = None
        self.publish()

    def on_rewind(self, turn_count: int) -> None:
        """A chat has returned to the moment after so many turns of its user."""
        self.call = replace(self.call, turn_count=turn_count)

    def on_partial_transcript(self, text: str) -> None:
        """See `CallObserver`."""
        if self._tells_partials and self._events.is_followed(self.call.organization_id):
            self._loop.call_soon_threadsafe(self._tell_partial, text)

    def _tell_partial(self, text: str) -> None:
        self._partial = text[-MAX_PARTIAL:] or None
        now_s = time.monotonic()
        if self._partial is not None and now_s - self._partial_at_s >= PARTIAL_EVERY_S:
            self._partial_at_s = now_s
            self.publish()

    def _change(
        self,
        *,
        conversation: ConversationState | None = None,
        held: bool | None = None,
        transferring: bool | None = None,
    ) -> None:
        before = self.state
        self._conversation = conversation or self._conversation
        self._held = self._held if held is None else held
        self._transferring = self._transferring if transferring is None else transferring
        if self.state != before:
            self.publish()

    def measure(self) -> None:
        """Publish the call if its audio has another quality."""
        before = self._quality
        self._quality = self._measured()
        if self._quality != before:
            self.publish()

    def _measured(self) -> AudioQuality:
        try:
            return self._quality if self.leg is None else AudioQuality.of(self.leg.quality())
        except KeyError:  # without RTP, or released
            return self._quality

    def publish(self, name: EventName = "call.updated") -> None:
        """Tell how the call is now."""
        self._events.publish(
            self.call.organization_id,
            name,
            lambda: CallNews(self.call, None if self.ended else self.details()),
        )

    def end(self, outcome: CallOutcome | None = None) -> None:
        """The call has ended; what is known of that is told once."""
        if self.ended:
            return
        self.ended = True
        if outcome is not None:
            self.call = replace(
                self.call,
                status=outcome.status,
                ended_reason=outcome.reason,
                started_at=outcome.answered_at,
                ended_at=outcome.ended_at,
                duration_seconds=seconds_between(outcome.answered_at, outcome.ended_at),
                turn_count=outcome.turn_count,
                recorded=outcome.recorded,
                media_quality=outcome.media_quality,
                sip_end=outcome.sip_end,
            )
        self.publish("call.ended")
