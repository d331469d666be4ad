"""Handler and view of `/nodes`."""

from __future__ import annotations

from pydantic import Field

from api.routing.route import ListResponse, NoQuery, RequestContext, Route
from api.schemas.base import Instant, View
from storage.nodes import leases
from storage.nodes.nodes import Node as StoredNode
from storage.nodes.nodes import NodeState


class Node(View):
    """A server of the installation."""

    name: str = Field(description="`[node] name`, by default the name of its host")
    url: str | None = Field(description="Where other nodes reach its API: `[node] url`; null if they do not")
    version: str = Field(description="Version of Trunkline")
    state: NodeState = Field(
        description="draining: it takes no new calls; down: it was stopped, or has sent no heartbeat for 6 s"
    )
    calls: int = Field(description="Live calls; of a node that is down, when it was seen last")
    capacity: int = Field(description="Calls that it may have at once: `[limits] max_calls`")
    last_seen_at: Instant = Field(description="Its last heartbeat, by the clock of the database")
    leases: int = Field(description="Pieces of work that it does for all: registrations, and rounds such as retention")

    @classmethod
    def of(cls, stored: StoredNode, leases: int) -> Node:
        """Returns the view."""
        return cls(
            name=stored.name,
            url=stored.url,
            version=stored.version,
            state=stored.state,
            calls=stored.calls,
            capacity=stored.capacity,
            last_seen_at=stored.last_seen_at,
            leases=leases,
        )


def list_nodes(context: RequestContext[None, NoQuery]) -> list[Node]:
    """GET /nodes"""
    counts = leases.counts(context.conn)
    return [Node.of(each, counts.get(each.instance, 0)) for each in context.services.nodes(context.conn)]


ROUTES = (
    Route(
        method="GET",
        path="/nodes",
        name="listNodes",
        role="operator",
        tag="Live",
        summary="List the servers that use the same database, by name",
        description="With a SQLite database it is the one server itself.",
        handler=list_nodes,
        response=ListResponse(Node),
    ),
)
