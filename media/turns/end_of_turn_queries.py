"""When the end-of-turn model is asked, and which of its answers counts. Times are arguments, in ms."""

from __future__ import annotations

from dataclasses import dataclass

from media.turns.constants import ANSWER_LIMIT_MS, ASK_AGAIN_MS, EPSILON_MS


@dataclass(slots=True)
class EndOfTurnQueries:
    """The questions of one call: never two of them open at once, and an answer counts in the silence that it is about.

    A question is known by the moment at which it was asked."""

    probability: float | None = None
    """The last answer about the present silence; None: none, or nothing to judge by."""
    _open: float | None = None  # the question that waits for its answer
    _first_asked: float = float("inf")  # the first question of the present silence
    _answered: float = float("-inf")  # when the last one of the present silence was answered

    def new_silence(self) -> None:
        """What was said about the silence before this one is void; a question that is open stays so."""
        self.probability = None
        self._first_asked, self._answered = float("inf"), float("-inf")

    def due(self, now_ms: float) -> bool:
        """Whether to ask now. Gives up a question that has waited for too long."""
        if self._open is not None and now_ms - self._open >= ANSWER_LIMIT_MS - EPSILON_MS:
            self.on_answer(now_ms, None, self._open)
        return self._open is None and now_ms - self._answered >= ASK_AGAIN_MS - EPSILON_MS

    def on_asked(self, now_ms: float) -> None:
        """The question has been put."""
        self._open = now_ms
        self._first_asked = min(self._first_asked, now_ms)

    def on_answer(self, now_ms: float, p: float | None, asked_ms: float) -> None:
        """Take the answer to the question of `asked_ms`, also to one that was given up."""
        if asked_ms == self._open:
            self._open = None
        if asked_ms >= self._first_asked:
            self._answered = now_ms
            self.probability = p
