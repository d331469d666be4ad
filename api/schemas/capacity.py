"""Capacity in responses."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import View
from calls.live.capacity import Capacity as CapacityNow
from calls.live.node_capacity import NodeCapacity as NodeCapacityNow
from calls.live.server_state import ServerState
from storage.nodes.nodes import NodeState


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


class NodeCapacity(View):
    """One of several servers with the same database, as of its last heartbeat."""

    name: str = Field(description="`[node] name`")
    state: NodeState = Field(description="draining: it takes no new calls; down: it sends no heartbeats")
    calls: int = Field(description="The organization's calls on it")
    calls_left: int = Field(description="How many more calls it takes, of any organization")
    rejection_reason: str | None = Field(description="Why it rejects new calls now; null if it does not")
    models: ModelLoad | None = Field(description='Null with `[limits] slow_answers = "off"`, and if it is down')
    warnings: list[ServerWarning]

    @classmethod
    def of(cls, now: NodeCapacityNow) -> NodeCapacity:
        """Returns the view."""
        return cls(
            name=now.name,
            state=now.state,
            calls=now.calls,
            calls_left=now.calls_left,
            rejection_reason=now.server.rejection_reason,
            models=_models(now.server),
            warnings=_warnings(now.server),
        )


class Capacity(View):
    """How many calls the organization has, and may have."""

    calls: int = Field(description="Calls that are queued, ringing or in progress, second legs of transfers included")
    max_calls: int = Field(description="The most that the organization may have")
    calls_left: int = Field(description="How many more there is room for, on all servers")
    rejection_reason: str | None = Field(
        description="Why this server rejects new calls, or lets them wait, now; null if it does not"
    )
    models: ModelLoad | None = Field(description='Null with `[limits] slow_answers = "off"`')
    warnings: list[ServerWarning] = Field(description="What is wrong with this server")
    nodes: list[NodeCapacity] = Field(
        description="Each of several servers with the same database, by name; empty for the only one"
    )

    @classmethod
    def of(cls, now: CapacityNow) -> Capacity:
        """Returns the view."""
        calls, server = now.calls, now.server
        return cls(
            calls=calls.calls,
            max_calls=calls.max_calls,
            calls_left=calls.calls_left,
            rejection_reason=server.rejection_reason,
            models=_models(server),
            warnings=_warnings(server),
            nodes=[NodeCapacity.of(each) for each in now.nodes],
        )


def _models(server: ServerState) -> ModelLoad | None:
    load = server.models
    if load is None:
        return None
    return ModelLoad(
        wait_seconds=round(load.wait_s, 1),
        max_wait_seconds=load.max_wait_s,
        capacity=load.capacity,
        slow=load.slow,
    )


def _warnings(server: ServerState) -> list[ServerWarning]:
    return [ServerWarning(part=part, message=message) for part, message in server.warnings.items()]
