"""Counters of the native parts for Prometheus, read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from media.engine.engine import AudioEngine
from sipcore.audio.pump import Pump
from sipcore.security import source_guard


class GuardCollector(Collector):
    """What the guard turned away: it counts for the whole process."""

    def describe(self) -> Iterator[Metric]:
        """Names are the same always; nothing is read at registration."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Read the counters."""
        away = CounterMetricFamily("trunkline_sip_turned_away", "SIP that the guard turned away", labels=["reason"])
        for reason, count in source_guard.drop_counts().items():
            away.add_metric([reason], count)
        yield away


class AudioCollector(Collector):
    """Pump and engine of a running server: to be unregistered before the pump stops."""

    def __init__(self, pump: Pump, engine: AudioEngine) -> None:
        self._pump = pump
        self._engine = engine

    def describe(self) -> Iterator[Metric]:
        """Names are the same always; nothing is read at registration."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Read the counters."""
        pump, engine = self._pump.stats(), self._engine.stats
        yield CounterMetricFamily("trunkline_pump_ticks", "Passes of the audio pump, all threads", pump.ticks)
        yield CounterMetricFamily(
            "trunkline_pump_skipped_ticks", "Passes left out after a standstill", pump.skipped_ticks
        )
        yield CounterMetricFamily("trunkline_pump_cpu_seconds", "CPU time of the pump's threads", pump.cpu_ns / 1e9)
        yield GaugeMetricFamily("trunkline_pump_slots", "Calls with sound", pump.calls)
        lateness = GaugeMetricFamily("trunkline_pump_lateness_ms", "How late ticks began", labels=["quantile"])
        deviation = GaugeMetricFamily("trunkline_packet_deviation_ms", "Packet distance off 20 ms", labels=["quantile"])
        for name, late, off in zip(("0.5", "0.99", "1"), pump.lateness_ms, pump.deviation_ms, strict=True):
            lateness.add_metric([name], late)
            deviation.add_metric([name], off)
        yield lateness
        yield deviation
        yield CounterMetricFamily("trunkline_engine_ticks", "Passes of the audio engine", engine.ticks)
        yield CounterMetricFamily("trunkline_engine_seconds", "Time in those passes", engine.tick_seconds)
        yield GaugeMetricFamily(
            "trunkline_engine_longest_tick_seconds", "The longest of them", engine.longest_tick_seconds
        )
