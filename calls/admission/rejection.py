"""Rejection of calls: the SIP status of an inbound call, and the API error for an organization without funds."""

from __future__ import annotations

from typing import Final

from config.errors import TrunklineError
from sipcore.messages.headers import HeaderLines

RETRY_AFTER_S: Final = 10
"""Retry-After of calls that are rejected while the server is full or draining."""


class InsufficientFunds(TrunklineError):
    """The organization's balance is used up, on a paid plan."""

    status = 402

    def __init__(self) -> None:
        super().__init__("Insufficient funds. Please top up your balance.")


class CallRejected(TrunklineError):
    """Rejection of an inbound call with the final SIP status `code`. `retry_after_s` is the value of Retry-After;
    `headers` are added to the response."""

    def __init__(self, code: int, why: str, retry_after_s: int | None = None, headers: HeaderLines = ()) -> None:
        super().__init__(why)
        self.code: Final = code
        self.retry_after_s: Final = retry_after_s
        self.headers: Final = headers
