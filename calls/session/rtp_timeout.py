"""RTP timeout: ends a call when no packet has come for `limit_s`, except on hold."""

from __future__ import annotations


class RtpTimeout:
    """Computes when the leg has to be checked next. Times in s."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._held = False

    def next_check_s(self, silence_s: float, on_hold: bool) -> float | None:
        """Seconds until the next check; None: no packet has come for `limit_s`, so the caller is gone. `silence_s`:
        time since the last packet. A caller on hold need not send, and afterwards the time starts anew."""
        was_held, self._held = self._held, on_hold
        if on_hold or (was_held and silence_s >= self._limit_s):
            return self._limit_s
        return None if silence_s >= self._limit_s else self._limit_s - silence_s
