"""What turn taking knows of the agent's voice. Times are arguments, in ms."""

from __future__ import annotations

from dataclasses import dataclass

from media.turns.constants import REOPEN_MS
from media.turns.events import AgentStarted, AgentStopped


@dataclass(slots=True)
class AgentSide:
    """`cooldown` is the agent's `postSpeechCooldown`."""

    cooldown: float
    audible: bool = False
    protected: bool = False
    """What plays cannot be interrupted."""
    cut: bool = False
    """It was interrupted; what was flushed still counts as audible for a moment."""
    started: float = float("-inf")
    stopped: float = float("-inf")
    _heard_out: bool = True  # it has spoken to an end since the caller's last turn, or there was none
    _turn_ended: float = float("-inf")

    def hear(self, now_ms: float, audible: bool) -> AgentStarted | AgentStopped | None:
        """Whether it is audible at that moment, and what is new about it."""
        if audible == self.audible:
            return None
        self.audible = audible
        if audible:
            self.started = now_ms
            return AgentStarted(now_ms)
        self._heard_out, self.cut = self._heard_out or not self.cut, False
        self.stopped = now_ms
        return AgentStopped(now_ms)

    def turn_ended(self, now_ms: float) -> None:
        """The caller's turn is over: it is the agent's."""
        self._turn_ended, self._heard_out = now_ms, False

    @property
    def stoppable(self) -> bool:
        """It can be paused and interrupted now."""
        return self.audible and not self.protected and not self.cut

    @property
    def guards_until(self) -> float:
        """Up to when `postSpeechCooldown` lasts, as far as is known."""
        return self.stopped + self.cooldown

    def guards(self, began_ms: float) -> bool:
        """Whether speech that began then does not count at first: it is over the agent, or might be its echo."""
        return self._is_under(began_ms) or began_ms < self.guards_until

    def is_reopened(self, began_ms: float) -> bool:
        """Whether speech that began then goes on with the turn before it: the agent has not been heard since that
        ended, or only for a moment."""
        if self._heard_out or (self.protected and self.audible):
            return False
        return began_ms - self._turn_ended <= REOPEN_MS or not self._is_under(began_ms)

    def _is_under(self, began_ms: float) -> bool:
        """It was audible already when that speech began."""
        return self.audible and began_ms >= self.started
