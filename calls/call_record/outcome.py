"""The outcome of a call, which the session hands over to be stored at the call's end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import sqlalchemy as sa

from calls.call_record.metering import NO_USAGE, CallUsage
from storage.calls.calls import EndedReason, EndStatus, TranscriptItem


class TransferEnd(Protocol):
    """The end of a transfer, which may be written more than once."""

    def write(self, conn: sa.Connection) -> bool:
        """Write it in a transaction. Does nothing if the transfer has ended."""

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON, for the call journal."""


@dataclass(frozen=True)
class CallOutcome:
    """How a call ended, and its record. `answered_at` is stored unless it has been; `recorded`: its recording holds
    audio."""

    status: EndStatus
    reason: EndedReason
    ended_at: datetime
    answered_at: datetime | None = None
    transcript: Sequence[TranscriptItem] = ()
    timeline: Sequence[dict[str, Any]] = ()
    turn_count: int = 0
    recorded: bool = False
    media_quality: dict[str, Any] | None = None
    """`calls.call_record.media_quality.to_json`."""
    sip_end: dict[str, Any] | None = None
    """`calls.call_record.end_reason.sip_end_of`."""
    usage: CallUsage = NO_USAGE
    transfer_ends: Sequence[TransferEnd] = ()
    """The ends of the call's transfers, for the transaction that stores the call's end: its webhook has them."""
    child_call_ids: Sequence[str] = ()
    """Its child calls, if any: they are closed first, because the call's webhook has them."""
    placed: bool = True
    """False: a queued call that this node has not dialled. Its end is not stored if another node has the call by
    now."""
