"""The type of `loop.call_later`, which tests replace by a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """The result of `loop.call_later`."""

    def cancel(self) -> None:
        """Cancel the call of the function."""


CallLater = Callable[[float, Callable[[], None]], Timer]
"""`loop.call_later`: takes seconds and the function to call then."""
