"""When the agent may speak to a callee: before the verdict of answer detection, and after it."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from calls.answer_detection.events import AnswerKind
from calls.conversation.speech_gate import SpeechGate
from calls.session.answer.answer_listener import MACHINES, AnswerListener

UNHEARD_MS: Final = 3000.0
"""Silence after the answer that the agent breaks, because a person may wait for it."""
TALKS_TO: Final = frozenset({AnswerKind.HUMAN, AnswerKind.SILENCE, AnswerKind.CALL_SCREENING})


class ReplyGate(SpeechGate):
    """Begins closed. It opens for a short answer as soon as that turn has ended, so that no person waits for the
    verdict: if a recording goes on, it closes again, and a greeting of a voicemail that the agent has talked over does
    no harm. Anything longer waits for the verdict."""

    def __init__(self, talks_to: Set[AnswerKind] = TALKS_TO) -> None:
        super().__init__()
        self._talks_to = talks_to
        self.close()

    def update(self, answer: AnswerListener) -> None:
        """Open or close it by what is known now."""
        if self._may_speak(answer):
            self.open()
        else:
            self.close()

    def _may_speak(self, answer: AnswerListener) -> bool:
        if answer.kind is None:
            return answer.is_short_answer or answer.unheard_ms >= UNHEARD_MS
        return answer.kind in self._talks_to or (answer.closed and answer.kind not in MACHINES)
