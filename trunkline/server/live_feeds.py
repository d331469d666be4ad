"""Feeds of what the live views show: the state of the server and its capacity, its numbers, and the other nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from calls.live.capacity import CapacityFeed
from calls.live.node_capacity import report_of
from calls.live.node_reachability import NodeReachability
from calls.live.number_feed import NumberFeed
from calls.live.server_state import ServerState
from calls.trunks.node_trunk_statuses import NodeTrunkStatuses
from storage.database.disk_space import DiskSpace
from storage.nodes.membership import NodeLoad
from trunkline.server.server import Server
from trunkline.server.server_state import server_state
from trunkline.wiring.server_components import ServerComponents
from trunkline.wiring.sip.sip_stack import SipStack
from trunkline.wiring.storage.server_storage import ServerStorage


@dataclass(frozen=True)
class LiveFeeds:
    """The feeds of a server. `node_load` returns what it reports to the other nodes. `trunk_statuses`: None for the
    only server of a database."""

    node_load: Callable[[], NodeLoad]
    reachability: NodeReachability
    capacity: CapacityFeed
    numbers: NumberFeed
    trunk_statuses: NodeTrunkStatuses | None


def connect_live_feeds(server: Server, components: ServerComponents, disk: DiskSpace) -> LiveFeeds:
    """Returns the feeds, which learn of changes from now on."""
    storage, sip, calls = components.storage, components.sip, components.calls
    service, events, provisioner = calls.service, calls.live_calls.events, sip.trunks.provisioner
    reachability = NodeReachability()

    def state() -> ServerState:
        return server_state(server, disk.rejection_reason, reachability.warning)

    node = None if storage.node is None else storage.node.name
    capacity = CapacityFeed(storage.database, events, service.capacity, state, node)
    reachability.on_change = capacity.on_change
    trunk_statuses = _node_trunk_statuses(storage, sip)

    def on_accepting() -> None:
        capacity.on_change()
        storage.membership.on_load()

    service.on_capacity_changed = server.update_accepting
    server.on_accepting = on_accepting
    service.refused_invites.on_added = calls.live_calls.on_refused
    numbers = NumberFeed(events, provisioner.statuses_of, provisioner.status)
    sip.endpoint.on_trunk_status, provisioner.on_read = numbers.on_trunk_status, numbers.on_read

    def node_load() -> NodeLoad:
        return replace(server.node_load(), report=report_of(state()))

    return LiveFeeds(node_load, reachability, capacity, numbers, trunk_statuses)


def _node_trunk_statuses(storage: ServerStorage, sip: SipStack) -> NodeTrunkStatuses | None:
    """What tells the other nodes of the registrations of this one, and this one of theirs; None for the only server."""
    if storage.node is None:
        return None
    provisioner = sip.trunks.provisioner
    statuses = NodeTrunkStatuses(
        storage.database, storage.node.name, provisioner.own_registrations, provisioner.on_other_nodes
    )
    provisioner.status_of_other_node = statuses.of
    return statuses
