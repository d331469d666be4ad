"""Audio metrics for Prometheus: the pump and the engine, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from media.engine.engine import AudioEngine
from sipcore.audio.pump import Pump


class AudioCollector(Collector):
    """The metrics of a running server's pump and engine. It must be unregistered before the pump stops."""

    def __init__(self, pump: Pump, engine: AudioEngine) -> None:
        self._pump = pump
        self._engine = engine

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names are constant, so registration reads no values."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Read the metrics."""
        pump, engine = self._pump.stats(), self._engine.stats
        yield CounterMetricFamily("trunkline_pump_ticks", "Ticks of the audio pump, all threads", pump.ticks)
        yield CounterMetricFamily("trunkline_pump_skipped_ticks", "Ticks skipped after a stall", pump.skipped_ticks)
        yield CounterMetricFamily("trunkline_pump_cpu_seconds", "CPU time of the pump's threads", pump.cpu_ns / 1e9)
        yield GaugeMetricFamily("trunkline_pump_slots", "Calls with audio", pump.calls)
        lateness = GaugeMetricFamily("trunkline_pump_lateness_ms", "Lateness of the pump's ticks", labels=["quantile"])
        deviation = GaugeMetricFamily(
            "trunkline_packet_deviation_ms", "Deviation of the packet interval from 20 ms", labels=["quantile"]
        )
        for name, late_ms, off_ms in zip(("0.5", "0.99", "1"), pump.lateness_ms, pump.deviation_ms, strict=True):
            lateness.add_metric([name], late_ms)
            deviation.add_metric([name], off_ms)
        yield lateness
        yield deviation
        yield CounterMetricFamily("trunkline_engine_ticks", "Ticks of the audio engine", engine.ticks)
        yield CounterMetricFamily("trunkline_engine_seconds", "Time spent in ticks of the engine", engine.tick_seconds)
        yield GaugeMetricFamily(
            "trunkline_engine_longest_tick_seconds", "Longest tick of the engine", engine.longest_tick_seconds
        )
        yield CounterMetricFamily(
            "trunkline_engine_lost_audio_seconds", "Audio of calls that was dropped unread", engine.lost_seconds
        )
