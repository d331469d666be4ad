"""SIP metrics for Prometheus: messages and trunks, read at each scrape."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, get_args

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from calls import metrics
from sipcore.trace.sip_log import Role, SipLog
from sipcore.trunks.trunk import TrunkState, TrunkStatus
from storage.phone_numbers.phone_numbers import PhoneNumber

USABLE: Final = ("registered", "listening")


class SipCollector(Collector):
    """The SIP metrics of a running server. `trunks` returns each number with a trunk, and its status."""

    def __init__(self, sip_log: SipLog, trunks: Callable[[], Sequence[tuple[PhoneNumber, TrunkStatus]]]) -> None:
        self._log = sip_log
        self._trunks = trunks

    def register(self) -> None:
        """Register the metrics."""
        self._log.on_answered = _answered
        REGISTRY.register(self)

    def unregister(self) -> None:
        """Unregister the metrics."""
        REGISTRY.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names are constant, so registration reads no values."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Read the metrics. Any thread."""
        sip_log = self._log
        messages = CounterMetricFamily(
            "trunkline_sip_messages", "SIP messages of known peers", labels=["direction", "method", "kind"]
        )
        for direction, counts in (("received", sip_log.received), ("sent", sip_log.sent)):
            for (method, status), count in sorted(counts.copy().items()):
                messages.add_metric([direction, method, _kind(status)], count)
        yield messages
        retransmissions = CounterMetricFamily(
            "trunkline_sip_retransmissions", "Retransmitted SIP messages of known peers", labels=["direction"]
        )
        retransmissions.add_metric(["received"], sip_log.retransmitted[False])
        retransmissions.add_metric(["sent"], sip_log.retransmitted[True])
        yield retransmissions
        yield CounterMetricFamily(
            "trunkline_sip_messages_not_seen",
            "SIP messages of known peers that were lost before they were logged",
            sip_log.lost,
        )
        yield from self._of_trunks()

    def _of_trunks(self) -> Iterator[Metric]:
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
        states_of: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
        for number, status in trunks:
            states_of[number.organization_id, number.sip_mode or ""].append(status.state in USABLE)
        for labels, each in sorted(states_of.items()):
            usable.add_metric(labels, all(each))
        yield usable


def _kind(status: int) -> str:
    return f"{status}xx" if status else "request"


def _answered(role: Role, seconds: float) -> None:
    metrics.CALL_SETUP.labels(direction="outbound" if role == "caller" else "inbound").observe(max(seconds, 0.0))
