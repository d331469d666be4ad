"""The type of `loop.call_later`, which tests replace by a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """What `loop.call_later` returns."""

    def cancel(self) -> None:
        """Do not call the function."""


CallLater = Callable[[float, Callable[[], None]], Timer]
"""`loop.call_later`: takes seconds and the function to call then."""
