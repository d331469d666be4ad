"""What turn taking knows of the agent's voice. Times are arguments, in ms."""

from __future__ import annotations

from dataclasses import dataclass

from media.turns.constants import REOPEN_MS
from media.turns.events import AgentStarted, AgentStopped


@dataclass(slots=True)
class AgentSpeech:
    """`cooldown` is the agent's `postSpeechCooldown`."""

    cooldown: float
    audible: bool = False
    uninterruptible: bool = False
    """What plays cannot be interrupted."""
    interrupted: bool = False
    """It was interrupted; what was flushed still counts as audible for a moment."""
    started: float = float("-inf")
    stopped: float = float("-inf")
    _finished_since_turn: bool = True  # it has spoken to an end since the caller's last turn, or there was none
    _turn_ended: float = float("-inf")

    def update(self, now_ms: float, audible: bool) -> AgentStarted | AgentStopped | None:
        """Whether it is audible at that moment, and what is new about it."""
        if audible == self.audible:
            return None
        self.audible = audible
        if audible:
            self.started = now_ms
            return AgentStarted(now_ms)
        self._finished_since_turn, self.interrupted = self._finished_since_turn or not self.interrupted, False
        self.stopped = now_ms
        return AgentStopped(now_ms)

    def on_turn_ended(self, now_ms: float) -> None:
        """The caller's turn is over: it is the agent's."""
        self._turn_ended, self._finished_since_turn = now_ms, False

    @property
    def interruptible(self) -> bool:
        """It can be paused and interrupted now."""
        return self.audible and not self.uninterruptible and not self.interrupted

    @property
    def cooldown_until(self) -> float:
        """Up to when `postSpeechCooldown` lasts, as far as is known."""
        return self.stopped + self.cooldown

    def is_guarded(self, began_ms: float) -> bool:
        """Whether speech that began then does not count at first: it is over the agent, or might be its echo."""
        return self._overlaps(began_ms) or began_ms < self.cooldown_until

    def reopens_turn(self, began_ms: float) -> bool:
        """Whether speech that began then goes on with the turn before it: the agent has not been heard since that
        ended, or only for a moment."""
        if self._finished_since_turn or (self.uninterruptible and self.audible):
            return False
        return began_ms - self._turn_ended <= REOPEN_MS or not self._overlaps(began_ms)

    def _overlaps(self, began_ms: float) -> bool:
        """It was audible already when that speech began."""
        return self.audible and began_ms >= self.started
