"""Digits that a caller dials, each counted once whatever ways it comes by, and gathered to one entry."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from calls.conversation.timers import CallLater, Timer
from media.dtmf.keys import DtmfMethod

GATHER_S: Final = 2.0
"""An entry is complete this long after its last digit; `#` completes it at once."""

LONGEST: Final = 64
"""An entry is complete when it has that many digits: no number that people dial is longer."""

REPEATED_WITHIN_MS: Final = 2000.0
"""A key by another way within this time is the same press: events and tones come when the key goes down, SIP INFO when
it is let go."""
CHANGED_AFTER: Final = 3
"""So many presses in a row by a less sure way alone: the telephone, or another one after a transfer, sends its keys so
now."""
ECHO_MS: Final = 700.0
"""A line may give back a key of ours so long after its end."""
_SURER: Final[tuple[DtmfMethod, ...]] = ("inband", "info", "rfc4733")
"""Each is surer than those before it: a voice can sound like a tone, and SIP INFO comes late."""


@dataclass(frozen=True)
class DtmfEntry:
    """A complete entry, without the `#` that ended it."""

    digits: str


@dataclass(frozen=True)
class DtmfKeyPressed:
    """The caller has pressed a key: they are there. What they dial is told when the entry is complete."""


@dataclass
class _Press:
    """One press of a key, and the ways in which it has come."""

    digit: str
    at_ms: float
    ways: set[DtmfMethod]


class DtmfDeduplicator:
    """Tells presses of a key from repetitions of a press by another way: many telephones send a key as RFC 4733 events
    and leave its tone in the sound, some send SIP INFO too. Times are on one clock, in any order."""

    def __init__(self) -> None:
        self._recent: deque[_Press] = deque()
        self._way: DtmfMethod | None = None  # the surest way that has worked in this call
        self._alone = 0  # presses in a row that only a less sure way has brought

    def is_new(self, digit: str, way: DtmfMethod, at_ms: float) -> bool:
        """Whether a key that came is a press of its own. Each way tells of a press once, so what comes by the same way
        again is another press, however soon. Once a surer way has worked, the others are not believed alone, unless
        they bring `CHANGED_AFTER` presses in a row without it."""
        while self._recent and self._recent[0].at_ms < at_ms - REPEATED_WITHIN_MS:
            self._recent.popleft()
        known = self._repeated_by(digit, way, at_ms)
        if known is None and self._is_doubtful(way):
            return False
        self._believe(way)
        if known is not None:
            known.ways.add(way)
            return False
        self._recent.append(_Press(digit, at_ms, {way}))
        return True

    def _repeated_by(self, digit: str, way: DtmfMethod, at_ms: float) -> _Press | None:
        for press in self._recent:
            if press.digit == digit and way not in press.ways and abs(at_ms - press.at_ms) <= REPEATED_WITHIN_MS:
                return press
        return None

    def _is_doubtful(self, way: DtmfMethod) -> bool:
        if self._way is None or _SURER.index(way) >= _SURER.index(self._way):
            return False
        self._alone += 1
        if self._alone < CHANGED_AFTER:
            return True
        self._way = way
        return False

    def _believe(self, way: DtmfMethod) -> None:
        if self._way is None or _SURER.index(way) >= _SURER.index(self._way):
            self._way = way
            self._alone = 0


class DtmfEchoFilter:
    """Tells the echo of keys that we press from keys of the caller. Times are ms on the clock of the audio engine."""

    def __init__(self) -> None:
        self._since_ms = math.inf
        self._until_ms = -math.inf

    def set_sending(self, on: bool, now_ms: float) -> None:
        """Our keys begin to be sent, or are not sent any more."""
        if not on:
            self._until_ms = now_ms + ECHO_MS
            return
        if now_ms > self._until_ms:
            self._since_ms = now_ms
        self._until_ms = math.inf

    def is_echo(self, at_ms: float) -> bool:
        """Whether a tone that began then is one of ours, however late the news of it comes."""
        return self._since_ms <= at_ms <= self._until_ms


class DtmfCollector:
    """Gathers digits. `sink` is told of each press and gets each complete entry. `later` is `loop.call_later`,
    `clock_ms` the present on the clock of the audio engine."""

    def __init__(
        self,
        sink: Callable[[DtmfKeyPressed | DtmfEntry], None],
        later: CallLater,
        clock_ms: Callable[[], float],
    ) -> None:
        self._sink = sink
        self._later = later
        self._clock_ms = clock_ms
        self._presses = DtmfDeduplicator()
        self._digits = ""
        self._timer: Timer | None = None

    def on_digit(self, digit: str, way: DtmfMethod, at_ms: float | None = None) -> None:
        """A key came: 0-9, *, #, A-D. The same press by another way counts for nothing. Without `at_ms` it came now."""
        if not self._presses.is_new(digit, way, self._clock_ms() if at_ms is None else at_ms):
            return
        self._sink(DtmfKeyPressed())
        self._stop_timer()
        if digit == "#":
            self._complete()
            return
        self._digits += digit
        if len(self._digits) == LONGEST:
            self._complete()
            return
        self._timer = self._later(GATHER_S, self._complete)

    def close(self) -> None:
        """No more keys come: what was pressed so far is the entry."""
        self._stop_timer()
        self._complete()

    def _complete(self) -> None:
        digits, self._digits = self._digits, ""
        if digits:
            self._sink(DtmfEntry(digits))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
