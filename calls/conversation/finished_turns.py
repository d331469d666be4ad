"""Reports the turns of a conversation, each once, when nothing can be added to it any more."""

from __future__ import annotations

from collections.abc import Callable

from calls.call_record.finished_turn import FinishedTurn
from calls.call_record.timeline import Timeline, TimelineTurn
from storage.calls.calls import Speaker


class FinishedTurns:
    """A turn of the user is over when its response begins: until then further words extend it. `on_turn` is called with
    each turn, in order."""

    def __init__(self, timeline: Timeline, on_turn: Callable[[FinishedTurn], None]) -> None:
        self._timeline = timeline
        self._on_turn = on_turn
        self._text = ""
        self._open: TimelineTurn | None = None

    def on_user_turn(self, text: str, turn: TimelineTurn, *, continues: bool) -> None:
        """Words of the user were recognized; `continues`: as more of the last turn."""
        if continues and self._open is not None:
            text = f"{self._text} {text}"
        else:
            self.finish_user_turn()
        self._text, self._open = text, turn

    def finish_user_turn(self) -> None:
        """Report the user's turn, if it is not reported yet."""
        turn, self._open = self._open, None
        if turn is not None:
            start_ms, end_ms = self._since_answer(turn.speech_start_ms), self._since_answer(turn.speech_end_ms)
            self._on_turn(FinishedTurn("user", self._text, start_ms, end_ms))

    def on_agent_turn(self, text: str, turn: TimelineTurn | None) -> None:
        """A response is over, of which this text was heard; `turn`: the one whose response it was."""
        if not text:
            return
        if turn is None:
            self._on_turn(FinishedTurn("assistant", text))
            return
        start_ms, end_ms = self._since_answer(turn.agent_start_ms), self._since_answer(turn.agent_end_ms)
        interrupted = turn.interrupted_ms is not None
        self._on_turn(FinishedTurn("assistant", text, start_ms, end_ms, interrupted))

    def on_utterance(self, speaker: Speaker, text: str, start_ms: float, end_ms: float | None) -> None:
        """A connected party has said something to the other one; times on the arrival clock."""
        since = self._since_answer
        self._on_turn(FinishedTurn("user", text, since(start_ms), since(end_ms), speaker=speaker))

    def _since_answer(self, at_ms: float | None) -> int | None:
        return None if at_ms is None else round(at_ms - self._timeline.zero_ms)
