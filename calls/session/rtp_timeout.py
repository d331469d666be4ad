"""When a caller has vanished without a BYE."""

from __future__ import annotations


class RtpTimeout:
    """Looks at a leg when its time may be over, never in between. Times in s."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._held = False

    def next_check_s(self, silence_s: float, on_hold: bool) -> float | None:
        """How long to wait until the next look; None: no packet has come for `limit_s`, the caller is gone. Nothing is
        asked of a caller on hold, and afterwards the time starts anew."""
        was_held, self._held = self._held, on_hold
        if on_hold or (was_held and silence_s >= self._limit_s):
            return self._limit_s
        return None if silence_s >= self._limit_s else self._limit_s - silence_s
