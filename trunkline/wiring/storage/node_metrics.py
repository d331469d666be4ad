"""Metrics of this server among several nodes for Prometheus, read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from storage.nodes.membership import NodeHealth


def register_node_metrics(name: str, version: str, health: Callable[[], NodeHealth], stack: AsyncExitStack) -> None:
    """Register the metrics of a node until `stack` is closed."""
    collector = NodeCollector(name, version, health)
    REGISTRY.register(collector)
    stack.callback(REGISTRY.unregister, collector)


class NodeCollector(Collector):
    """The name of the node, and how it takes part in the work of all."""

    def __init__(self, name: str, version: str, health: Callable[[], NodeHealth]) -> None:
        self._name = name
        self._version = version
        self._health = health

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names are constant, so registration reads no values."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Read the values. Any thread."""
        info = GaugeMetricFamily("trunkline_node_info", "1, with the node's name", labels=["node", "version"])
        info.add_metric([self._name, self._version], 1)
        health = self._health()
        age_s = float("nan") if health.heartbeat_age_s is None else health.heartbeat_age_s
        yield info
        yield GaugeMetricFamily("trunkline_node_leases", "Leases that this node holds", health.leases)
        yield GaugeMetricFamily("trunkline_node_heartbeat_age_seconds", "Time since the last heartbeat", age_s)
        yield CounterMetricFamily(
            "trunkline_database_outage_seconds", "Time in which the database took no heartbeats", health.outage_s
        )
