"""Screening of a transfer's target: whether a person has answered, from the 200 OK on. What an unanswered call plays is
no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from calls.answer_detection.events import AnswerKind
from calls.answer_detection.settings import AnswerDetectionSettings
from calls.session.answer.answer_listener import MACHINES, AnswerListener
from calls.session.answer.reply_gate import UNHEARD_MS, ReplyGate
from calls.session.transfer.child_call import ChildCall
from calls.session.transfer.result import TransferResult
from media.engine.call_audio import CallAudio, CallEventListener
from media.engine.engine import AudioEngine
from models.protocols import SpeechToText
from storage.agents.agents import Agent

MAX_QUEUE_S: Final = 180.0
"""Time for which the agent waits for a person behind queues and menus, together, without holds; for one menu alone it
is the `machine_window_ms` of answer detection."""
_MIN_WAIT_S: Final = 1.0
"""Minimum time between two checks of whether the wait is over, which a hold makes longer."""
_WAITING: Final = frozenset({AnswerKind.MENU, AnswerKind.HOLD_QUEUE})
_RESULTS: Final[Mapping[AnswerKind, TransferResult]] = {
    AnswerKind.VOICEMAIL: TransferResult("voicemail", detail="a voicemail answered"),
    AnswerKind.FAX: TransferResult("failed", detail="a fax answered", cause="fax"),
    AnswerKind.MAILBOX_UNAVAILABLE: TransferResult(
        "failed", detail="an announcement or a tone answered", cause="unavailable"
    ),
}


class TargetScreening:
    """Answer detection of an answered child call, from `listen` to `close`. `ended` is done once nobody can be talked
    to there. `reached` is done once the caller may be connected without a briefing: with a person, a menu, a queue or a
    call screening, or when nothing was heard for 3 s. `gate` is open while the agent may brief: not in menus and
    queues."""

    def __init__(self, child: ChildCall, agent: Agent, engine: AudioEngine, *, waits: bool) -> None:
        """`waits`: a menu or queue is waited out, and is no answer when the wait is over."""
        self.gate = ReplyGate()
        loop = asyncio.get_running_loop()
        self.reached: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[TransferResult] = loop.create_future()
        self._child = child
        self._agent = agent
        self._engine = engine
        self._waits = waits
        self._wait_limit: asyncio.TimerHandle | None = None
        self._waits_until_ms = 0.0  # by the time listened
        self._recognizer_failed = False
        self._listener: AnswerListener | None = None
        self._closed = False

    def listen(self, events: CallEventListener, recognizer: SpeechToText) -> AnswerListener:
        """Begin. Returns the listener of the child call's events, which passes them on to `events`, and which is to be
        the monitor of its audio, too."""
        self._listener = self._child.answer = AnswerListener(
            call_id=self._child.call.id,
            settings=AnswerDetectionSettings(self._agent.language_hint, hold_window_ms=MAX_QUEUE_S * 1000),
            rate=self._child.media.rate,
            events=events,
            now_ms=self._engine.now_ms,
            post=asyncio.get_running_loop().call_soon_threadsafe,
            on_change=self._on_change,
            is_held=lambda: self._child.hold.is_on,
        )
        self._listener.spot_phrases(recognizer)
        if self._recognizer_failed:
            self._listener.recognizer_failed()
        return self._listener

    @property
    def is_machine(self) -> bool:
        """Nobody can be talked to."""
        return self._listener is not None and self._listener.kind in MACHINES

    @property
    def is_waiting(self) -> bool:
        """A menu or a queue has answered, and no person since."""
        return self._listener is not None and self._listener.kind in _WAITING

    @property
    def is_addressed(self) -> bool:
        """The agent has become audible."""
        return self._listener is not None and self._listener.agent_started

    @property
    def turn_is_reply(self) -> bool:
        """The target's last turn began after the agent had become audible."""
        return self._listener is not None and self._listener.turn_is_reply

    def partial_text(self, text: str) -> None:
        """The recognizer's words of the open turn so far. Any thread."""
        if self._listener is not None:
            self._listener.partial_text(text)

    def recognizer_failed(self) -> None:
        """The recognizer, which may have failed before `listen`, has no more words. Any thread."""
        self._recognizer_failed = True
        if self._listener is not None:
            self._listener.recognizer_failed()

    def final_text(self, text: str) -> None:
        """The words of a turn that has ended."""
        if self._listener is not None:
            self._listener.final_text(text)

    def close(self) -> None:
        """Screen no longer: it is decided what comes of the call. Idempotent."""
        self._closed = True
        if self._wait_limit is not None:
            self._wait_limit.cancel()
        if self._listener is not None:
            self._listener.stop()

    def stop_listening(self, audio: CallAudio) -> None:
        """Close, and detach everything from the audio, which goes on."""
        self.close()
        audio.set_listening(False)
        audio.speech_sink = audio.end_of_turn_sink = audio.monitor = None

    def _on_change(self) -> None:
        listener = self._listener
        assert listener is not None
        if self._closed or self.ended.done():
            return
        kind = listener.kind
        if kind in MACHINES:
            self.ended.set_result(_RESULTS[kind])
            self._child.lifecycle.end("voicemail")
        elif self._waits and kind in _WAITING and self._has_waited(listener):
            self.ended.set_result(TransferResult("no_answer", detail=f"no person after a {kind}"))
        else:
            self.gate.update(listener)
            heard_or_silent = kind is not None or listener.unheard_ms >= UNHEARD_MS
            if heard_or_silent and not self.reached.done():
                self.reached.set_result(None)

    def _has_waited(self, listener: AnswerListener) -> bool:
        if self._wait_limit is None:
            self._waits_until_ms = listener.listened_ms + MAX_QUEUE_S * 1000
            self._check_wait_after(MAX_QUEUE_S)
        return listener.closed or self._left_ms(listener) <= 0

    def _left_ms(self, listener: AnswerListener) -> float:
        return self._waits_until_ms - listener.listened_ms

    def _check_wait_after(self, seconds: float) -> None:
        self._wait_limit = asyncio.get_running_loop().call_later(seconds, self._check_wait)

    def _check_wait(self) -> None:
        assert self._listener is not None
        if (left_ms := self._left_ms(self._listener)) > 0:
            self._check_wait_after(max(left_ms / 1000, _MIN_WAIT_S))
        else:
            self._on_change()
