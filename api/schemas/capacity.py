"""Capacity in responses."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import View
from calls.live.capacity import Capacity as CapacityNow


class ModelLoad(View):
    """How busy the models are."""

    wait_seconds: float = Field(description="How long a response waits for the models, smoothed over 10 s")
    max_wait_seconds: float = Field(description="The longest wait that is accepted: `[limits] max_answer_wait_s`")
    capacity: int | None = Field(
        description="Calls that the models are expected to answer in time; null before they are measured, and if they "
        "cost nothing on this machine"
    )
    slow: bool = Field(description="Responses wait for longer than maxWaitSeconds")


class ServerWarning(View):
    """Something that is wrong with the server, or is about to be."""

    part: str = Field(description="Part of the server: such as `sip`, `models`, `audio`, `disk`, `calls`")
    message: str = Field(description="What is wrong")


class Capacity(View):
    """How many calls the organization has, and may have."""

    calls: int = Field(description="Calls that are queued, ringing or in progress, second legs of transfers included")
    max_calls: int = Field(description="The most that the organization may have")
    calls_left: int = Field(description="How many more there is room for, on the whole server")
    rejection_reason: str | None = Field(description="Why new calls are rejected or wait now; null if they are not")
    models: ModelLoad | None = Field(description='Null with `[limits] slow_answers = "off"`')
    warnings: list[ServerWarning]

    @classmethod
    def of(cls, now: CapacityNow) -> Capacity:
        """Returns the view."""
        calls, server = now.calls, now.server
        load = server.models
        return cls(
            calls=calls.calls,
            max_calls=calls.max_calls,
            calls_left=calls.calls_left,
            rejection_reason=server.rejection_reason,
            models=None
            if load is None
            else ModelLoad(
                wait_seconds=round(load.wait_s, 1),
                max_wait_seconds=load.max_wait_s,
                capacity=load.capacity,
                slow=load.slow,
            ),
            warnings=[ServerWarning(part=part, message=message) for part, message in server.warnings.items()],
        )
