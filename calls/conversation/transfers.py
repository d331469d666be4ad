"""Transfers of the call, as the conversation uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from storage.calls.transfers import TransferOrder


@dataclass(frozen=True)
class TransferReport:
    """What came of a transfer whose caller stays with the agent. `for_model`: the result of the tool, which also says
    what can be done next. `for_caller`: what the agent says if the language model says nothing; None: nothing."""

    for_model: str
    for_caller: str | None = None


class Transfers(Protocol):
    """Transfers of the call."""

    async def run(self, order: TransferOrder) -> TransferReport:
        """Transfer the call. Returns only if the caller stays with the agent."""

    def cancel(self) -> None:
        """The caller wants to stay with the agent: `run` returns soon."""


class NoTransfers:
    """The transfers of a call that cannot be transferred."""

    async def run(self, order: TransferOrder) -> TransferReport:
        """Returns that it is not possible."""
        return TransferReport("This call cannot be transferred.")

    def cancel(self) -> None:
        """Does nothing."""
