"""When the callee spoke."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

TONE_EDGE_MS: Final = 250.0
"""Voice activity detection that takes a tone for speech finds its edges up to this far from the tone's."""


@dataclass(slots=True)
class _Segment:
    """`end` is None while it lasts."""

    start: float
    end: float | None = None


class SpeechTimeline:
    """Speech of the callee since `begin`; times in ms."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []
        self._since = 0.0
        self._stopped_ms = float("-inf")

    def begin(self, at_ms: float) -> None:
        """Forget all speech that began before; what is open stays open, without a length of its own."""
        self._since = at_ms
        self._segments = [segment for segment in self._segments if segment.end is None]

    def begin_at_answer(self, at_ms: float) -> None:
        """As `begin`, but open speech counts from now on."""
        self._since = at_ms
        self._segments = [_Segment(at_ms)] if self.speaking else []

    def forget_pause(self) -> None:
        """The next speech begins after a pause of unknown length: `pause_ms` is infinite."""
        self._stopped_ms = float("-inf")

    def start(self, at_ms: float) -> None:
        """Speech begins, at the earliest at the end of the last one or at `begin`; without effect while it is open."""
        if not self.speaking:
            self._segments.append(_Segment(max(at_ms, self._last_end())))

    def stop(self, at_ms: float) -> None:
        """Speech ends; without effect while none is open."""
        if self.speaking:
            self._segments[-1].end = self._stopped_ms = max(at_ms, self._segments[-1].start)

    def drop_tone(self, start_ms: float, end_ms: float) -> None:
        """Remove a tone that voice activity detection has taken for speech."""
        kept: list[_Segment] = []
        for segment in self._segments:
            end = segment.end
            if segment.start >= start_ms - TONE_EDGE_MS and (end is None or end <= end_ms + TONE_EDGE_MS):
                continue
            if segment.start < start_ms and (end is None or start_ms < end <= end_ms + TONE_EDGE_MS):
                segment.end = start_ms
            kept.append(segment)
        self._segments = kept

    @property
    def speaking(self) -> bool:
        """Speech is open."""
        return bool(self._segments) and self._segments[-1].end is None

    @property
    def first_start_ms(self) -> float | None:
        """The beginning of the first speech."""
        counted = self._counted()
        return counted[0].start if counted else None

    @property
    def last_start_ms(self) -> float | None:
        """The beginning of the last speech."""
        counted = self._counted()
        return counted[-1].start if counted else None

    def quiet_ms(self, now_ms: float) -> float:
        """Time since the last end of any speech, or since `begin`; 0 while speech is open."""
        return 0.0 if self.speaking else max(now_ms - max(self._last_end(), self._since), 0.0)

    def pause_ms(self, start_ms: float) -> float:
        """Time from the last end of speech, also before `begin`, to a beginning; 0 while speech is open."""
        return 0.0 if self.speaking else start_ms - self._stopped_ms

    def span_ms(self, now_ms: float) -> float:
        """From the first beginning to the last end, pauses included."""
        counted = self._counted()
        return (counted[-1].end or now_ms) - counted[0].start if counted else 0.0

    def speech_ms(self, now_ms: float) -> float:
        """Total speech, without pauses."""
        return sum((segment.end or now_ms) - segment.start for segment in self._counted())

    def run_ms(self, now_ms: float, max_pause_ms: float) -> float:
        """Length of the last speech, with all before it that no longer pause separates from it."""
        start = self.run_start_ms(max_pause_ms)
        return (self._counted()[-1].end or now_ms) - start if start is not None else 0.0

    def run_start_ms(self, max_pause_ms: float) -> float | None:
        """The beginning of the speech of `run_ms`."""
        counted = self._counted()
        if not counted:
            return None
        start = counted[-1].start
        for segment in reversed(counted[:-1]):
            if start - (segment.end or start) > max_pause_ms:
                break
            start = segment.start
        return start

    def turns(self, min_pause_ms: float) -> int:
        """Number of ended turns: speech with longer pauses between."""
        ended = [segment for segment in self._counted() if segment.end is not None]
        pauses = [after.start - (before.end or 0) for before, after in pairwise(ended)]
        return sum(pause > min_pause_ms for pause in pauses) + 1 if ended else 0

    def _counted(self) -> list[_Segment]:
        return [segment for segment in self._segments if segment.start >= self._since]

    def _last_end(self) -> float:
        return next((segment.end for segment in reversed(self._segments) if segment.end is not None), self._since)
