"""Timers as parts of a call use them; the event loop's in a call, anybody's in a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """What `loop.call_later` gives back."""

    def cancel(self) -> None:
        """Do not run it."""


CallLater = Callable[[float, Callable[[], None]], Timer]
"""`loop.call_later`: seconds, and what to run then."""
