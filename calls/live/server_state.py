"""The state of a server as its clients see it: how busy its models are, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ModelLoad:
    """`wait_s`: how long a response would wait for the models, smoothed; `max_wait_s`: the most that calls may wait.
    `capacity`: calls that the models are expected to answer in time, None if it is not known. `slow`: they keep calls
    waiting longer than that."""

    wait_s: float
    max_wait_s: float
    capacity: int | None
    slow: bool


@dataclass(frozen=True)
class ServerState:
    """What is the same for every organization. `models` None: they are not watched. `warnings`: what is wrong, by
    part."""

    rejection_reason: str | None = None
    models: ModelLoad | None = None
    warnings: Mapping[str, str] = field(default_factory=dict)
