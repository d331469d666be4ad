"""Metrics of remote models for Prometheus, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from models.remote.outcomes import RemoteOutcomes


def register_remote_metrics(outcomes: RemoteOutcomes, stack: AsyncExitStack) -> None:
    """Register the metrics of remote models until `stack` is closed."""
    collector = RemoteCollector(outcomes)
    REGISTRY.register(collector)
    stack.callback(REGISTRY.unregister, collector)


class RemoteCollector(Collector):
    """What the requests of this node to remote models came to."""

    def __init__(self, outcomes: RemoteOutcomes) -> None:
        self._outcomes = outcomes

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names are constant, so registration reads no values."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Read the counters. Any thread."""
        requests = CounterMetricFamily(
            "trunkline_remote_requests", "Requests to remote models", labels=["model", "outcome"]
        )
        for labels, count in sorted(self._outcomes.counts.items()):
            requests.add_metric(labels, count)
        connections = CounterMetricFamily(
            "trunkline_remote_connections", "Responses of remote models", labels=["model", "connection"]
        )
        for labels, count in sorted(self._outcomes.connections.items()):
            connections.add_metric(labels, count)
        waited = CounterMetricFamily(
            "trunkline_remote_wait_seconds", "Waits for a place among the requests under way", labels=["model"]
        )
        under_way = GaugeMetricFamily("trunkline_remote_under_way", "Requests under way", labels=["model"])
        limit = GaugeMetricFamily("trunkline_remote_limit", "Requests that may be under way", labels=["model"])
        for name, queue in sorted(self._outcomes.queues.items()):
            waited.add_metric([name], queue.waited_s)
            under_way.add_metric([name], queue.in_flight)
            limit.add_metric([name], queue.current_limit)
        yield from (requests, connections, waited, under_way, limit)
