"""SIP metrics for Prometheus: messages, trunks and the source guard's drops, read at each scrape."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Final, get_args

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from calls import metrics
from sipcore.security import source_guard
from sipcore.trace.sip_capture import Role, SipCapture
from sipcore.trunks.trunk import TrunkState, TrunkStatus
from storage.phone_numbers.phone_numbers import PhoneNumber, effective_trunk

USABLE_STATES: Final = ("registered", "listening")


def register_guard_metrics(stack: AsyncExitStack) -> None:
    """Register the source guard's metrics until `stack` is closed."""
    collector = SourceGuardCollector()
    REGISTRY.register(collector)
    stack.callback(REGISTRY.unregister, collector)


class SourceGuardCollector(Collector):
    """The counters of SIP messages that the source guard drops, for the whole process."""

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names are constant, so registration reads no values."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Read the counters. Any thread."""
        drops = CounterMetricFamily(
            "trunkline_sip_turned_away", "SIP that the source guard dropped or rejected", labels=["reason"]
        )
        for reason, count in source_guard.drop_counts().items():
            drops.add_metric([reason], count)
        yield drops


class SipCollector(Collector):
    """The SIP metrics of a running server. `trunks` returns each number with a trunk, and its status."""

    def __init__(
        self, sip_capture: SipCapture, trunks: Callable[[], Sequence[tuple[PhoneNumber, TrunkStatus]]]
    ) -> None:
        self._capture = sip_capture
        self._trunks = trunks

    def register(self) -> None:
        """Register the metrics."""
        self._capture.on_answered = _observe_call_setup
        REGISTRY.register(self)

    def unregister(self) -> None:
        """Unregister the metrics."""
        REGISTRY.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names are constant, so registration reads no values."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Read the metrics. Any thread."""
        sip_capture = self._capture
        messages = CounterMetricFamily(
            "trunkline_sip_messages", "SIP messages of known peers", labels=["direction", "method", "kind"]
        )
        for direction, counts in (("received", sip_capture.received), ("sent", sip_capture.sent)):
            for (method, status), count in sorted(counts.copy().items()):
                messages.add_metric([direction, method, _kind(status)], count)
        yield messages
        retransmissions = CounterMetricFamily(
            "trunkline_sip_retransmissions", "Retransmitted SIP messages of known peers", labels=["direction"]
        )
        retransmissions.add_metric(["received"], sip_capture.retransmitted[False])
        retransmissions.add_metric(["sent"], sip_capture.retransmitted[True])
        yield retransmissions
        yield CounterMetricFamily(
            "trunkline_sip_messages_not_seen",
            "SIP messages of known peers that were lost before they were logged",
            sip_capture.lost,
        )
        yield from self._trunk_metrics()

    def _trunk_metrics(self) -> Iterator[Metric]:
        trunks = self._trunks()
        states = Counter(status.state for _, status in trunks)
        by_state = GaugeMetricFamily("trunkline_trunks", "Phone numbers with a trunk, by its state", labels=["state"])
        for state in get_args(TrunkState):
            by_state.add_metric([state], states[state])
        yield by_state
        usable = GaugeMetricFamily(
            "trunkline_trunk_usable",
            "1: all of the organization's trunks of this mode are registered, or listening and not known to be down",
            labels=["organization_id", "sip_mode"],
        )
        are_usable: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
        for number, status in trunks:
            are_usable[number.organization_id, effective_trunk(number).sip_mode or ""].append(
                status.state in USABLE_STATES
            )
        for labels, values in sorted(are_usable.items()):
            usable.add_metric(labels, all(values))
        yield usable


def _kind(status: int) -> str:
    return f"{status}xx" if status else "request"


def _observe_call_setup(role: Role, seconds: float) -> None:
    metrics.CALL_SETUP.labels(direction="outbound" if role == "caller" else "inbound").observe(max(seconds, 0.0))
