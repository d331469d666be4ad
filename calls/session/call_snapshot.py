"""The state of a call at one moment, for the operator's commands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sipcore.dialogs.call_leg import CallLeg
from storage.calls.calls import Call


@dataclass(frozen=True)
class CallSnapshot:
    """`leg` is None while the call is queued; `answered_at` until it is answered. `held`: a client of the API holds the
    call."""

    call: Call
    leg: CallLeg | None = None
    answered_at: datetime | None = None
    held: bool = False

    @property
    def status(self) -> str:
        """The API's `status`."""
        if self.answered_at is not None:
            return "in_progress"
        return (
            "ringing" if self.leg is not None and (self.call.direction == "inbound" or self._is_ringing) else "queued"
        )

    @property
    def _is_ringing(self) -> bool:
        return self.leg is not None and self.leg.ringing.done()
