"""Collects the caller's DTMF digits into entries; a digit that is sent by several methods counts once."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from calls.conversation.timers import CallLater, Timer
from media.dtmf.keys import DtmfMethod

INTER_DIGIT_TIMEOUT_S: Final = 2.0
"""Inter-digit timeout: time after its last digit at which an entry is complete; `#` completes it at once."""

MAX_DIGITS: Final = 64
"""Digits at which an entry is complete, because no dialled number is longer."""

DUPLICATE_WINDOW_MS: Final = 2000.0
"""A digit by another method within this time is the same key press: RFC 4733 events and tones are sent when the key is
pressed, SIP INFO when it is released."""
METHOD_CHANGE_PRESSES: Final = 3
"""Key presses in a row by a less reliable method alone after which that method counts, because the telephone, or
another one after a transfer, sends its keys by it now."""
ECHO_WINDOW_MS: Final = 700.0
"""Time after the end of DTMF that we sent in which its echo may arrive."""
_BY_RELIABILITY: Final[tuple[DtmfMethod, ...]] = ("inband", "info", "rfc4733")
"""In order of reliability: speech can sound like a tone, and SIP INFO comes late."""


@dataclass(frozen=True)
class DtmfEntry:
    """A complete entry, without the `#` that ended it. The times of its first and last key, `#` included, are ms on the
    arrival clock."""

    digits: str
    first_key_ms: float | None = field(default=None, compare=False)
    last_key_ms: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class DtmfKeyPressed:
    """The caller has pressed a key, and so is not idle. The digit comes with the complete entry."""


@dataclass
class _KeyPress:
    """One key press, and the methods by which it was received."""

    digit: str
    at_ms: float
    methods: set[DtmfMethod]


class DtmfDeduplicator:
    """Recognizes duplicates of a key press by another method: many telephones send a key as RFC 4733 events and leave
    its tone in the audio, some send SIP INFO too. Times are on one clock, in any order."""

    def __init__(self) -> None:
        self._recent: deque[_KeyPress] = deque()
        self._method: DtmfMethod | None = None  # the most reliable one that was received in this call
        self._unconfirmed_presses = 0  # in a row, by a less reliable method alone

    def register(self, digit: str, method: DtmfMethod, at_ms: float) -> bool:
        """Take a digit that was received. Returns True if it is a key press of its own. A method reports a press once,
        so the same digit by the same method is another press, however soon. Once a more reliable method was received,
        the others alone do not count, unless they report `METHOD_CHANGE_PRESSES` presses in a row without it."""
        while self._recent and self._recent[0].at_ms < at_ms - DUPLICATE_WINDOW_MS:
            self._recent.popleft()
        known = self._same_press(digit, method, at_ms)
        if known is None and self._is_less_reliable(method) and not self._try_method_change(method):
            return False
        self._update_method(method)
        if known is not None:
            known.methods.add(method)
            return False
        self._recent.append(_KeyPress(digit, at_ms, {method}))
        return True

    def _same_press(self, digit: str, method: DtmfMethod, at_ms: float) -> _KeyPress | None:
        for press in self._recent:
            if press.digit == digit and method not in press.methods and abs(at_ms - press.at_ms) <= DUPLICATE_WINDOW_MS:
                return press
        return None

    def _is_less_reliable(self, method: DtmfMethod) -> bool:
        return self._method is not None and _BY_RELIABILITY.index(method) < _BY_RELIABILITY.index(self._method)

    def _try_method_change(self, method: DtmfMethod) -> bool:
        """Count a press by a less reliable method alone. Returns True if that method counts from now on."""
        self._unconfirmed_presses += 1
        if self._unconfirmed_presses < METHOD_CHANGE_PRESSES:
            return False
        self._method = method
        return True

    def _update_method(self, method: DtmfMethod) -> None:
        if not self._is_less_reliable(method):
            self._method = method
            self._unconfirmed_presses = 0


class DtmfEchoFilter:
    """Recognizes the echo of sent DTMF among tones in the caller's audio. Times are ms on the clock of the
    audio engine."""

    def __init__(self) -> None:
        self._since_ms = math.inf
        self._until_ms = -math.inf

    def set_sending(self, on: bool, now_ms: float) -> None:
        """Set whether our DTMF is being sent."""
        if not on:
            self._until_ms = now_ms + ECHO_WINDOW_MS
            return
        if now_ms > self._until_ms:
            self._since_ms = now_ms
        self._until_ms = math.inf

    def is_echo(self, at_ms: float) -> bool:
        """True if a tone that began at `at_ms` is an echo, however late it is reported."""
        return self._since_ms <= at_ms <= self._until_ms


class DtmfCollector:
    """`sink` gets an event for each key press, and each complete entry. `call_later` is `loop.call_later`, `clock_ms`
    the clock of the audio engine. At `max_digits` an entry is complete."""

    def __init__(
        self,
        sink: Callable[[DtmfKeyPressed | DtmfEntry], None],
        call_later: CallLater,
        clock_ms: Callable[[], float],
        max_digits: int = MAX_DIGITS,
    ) -> None:
        self._max_digits = max_digits
        self._sink = sink
        self._call_later = call_later
        self._clock_ms = clock_ms
        self._deduplicator = DtmfDeduplicator()
        self._digits = ""
        self._first_key_ms = self._last_key_ms = 0.0
        self._timer: Timer | None = None

    def on_digit(self, digit: str, method: DtmfMethod, at_ms: float | None = None) -> None:
        """Collect a digit: 0-9, *, #, A-D; without `at_ms` it was received now. A duplicate by another method is
        dropped."""
        pressed_ms = self._clock_ms() if at_ms is None else at_ms
        if not self._deduplicator.register(digit, method, pressed_ms):
            return
        self._last_key_ms = pressed_ms
        if not self._digits:
            self._first_key_ms = pressed_ms
        self._sink(DtmfKeyPressed())
        self._stop_timer()
        if digit == "#":
            self._complete()
            return
        self._digits += digit
        if len(self._digits) == self._max_digits:
            self._complete()
            return
        self._timer = self._call_later(INTER_DIGIT_TIMEOUT_S, self._complete)

    def close(self) -> None:
        """Complete the entry with the digits so far."""
        self._stop_timer()
        self._complete()

    def _complete(self) -> None:
        digits, self._digits = self._digits, ""
        if digits:
            self._sink(DtmfEntry(digits, self._first_key_ms, self._last_key_ms))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
