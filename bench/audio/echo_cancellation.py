"""Echo cancellation for callers on a loudspeaker: `python -m bench.audio.echo_cancellation`.

Prints the attenuation of the echo by the filter, false pauses, barge-in latency through the echo, CPU, and the time
that many calls with an echo take of a tick. Calls are simulated on a virtual clock; flite speaks for both sides.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from statistics import median
from typing import Final

import numpy as np
from structlog.testing import capture_logs

from config import logging as logs
from media.audio_port import TICK_MS, Samples
from media.echo.canceller import LEAD_MS
from media.echo.speex import FRAME_MS, SpeexLibrary
from media.turn_taking.events import BargeIn, PlayoutPaused
from tests.media.echo.echo_room import EchoPort, Room
from tests.media.echo.test_echo_guard import monologue
from tests.media.engine_harness import EngineHarness, Listener
from tests.media.speech import silence, speech

RATES: Final = (8000, 16000)
LEVELS: Final = (-10, -20, -30)
DELAYS: Final = (50, 150, 300, 400)
NO_ECHO: Final = -200
CPU_CALLS: Final = 10
TICKS_MS: Final = 8000
CONCURRENT_CALLS: Final = (1, 10, 50)
AGENT_START_MS: Final = 500
SENTENCES: Final = ("can I speak to a person", "no thank you that is wrong", "hold on please wait a moment")


def run_calls(rooms: list[Room], callers: list[Samples], sentences: int = 5) -> tuple[EngineHarness, list[Listener]]:
    """Runs calls in which the agent speaks `sentences` sentences at the same time. Returns their listeners, too."""
    port = EchoPort(len(rooms))
    harness = EngineHarness(port=port)
    calls = [harness.call(caller, rate=room.rate) for room, caller in zip(rooms, callers, strict=True)]
    port.rooms.update({call.slot: room for (call, _, _), room in zip(calls, rooms, strict=True)})
    harness.run(AGENT_START_MS)
    agent_speech = monologue(rooms[0].rate, sentences)
    for call, _, _ in calls:
        call.playout.begin("text")
        call.playout.write(agent_speech)
        call.playout.end()
    harness.run(len(agent_speech) * 1000 // rooms[0].rate + 1000)
    return harness, [listener for _, listener, _ in calls]


def echo_attenuations(room: Room) -> Iterator[float]:
    """Echo return loss enhancement of the filter alone, dB, from 0.5 to 1, 1 to 2, 2 to 5 and 5 to 20 s."""
    frame, sent = FRAME_MS * room.rate // 1000, monologue(room.rate)
    reference = np.concatenate([silence(room.delay_ms - LEAD_MS, room.rate), sent])
    canceller = SpeexLibrary().create_filter(room.rate)
    echo_energy, residual_energy = [], []
    for at in range(0, len(sent) - frame, frame):
        received = room.receive(sent[at : at + frame], silence(FRAME_MS, room.rate))
        echo_energy.append(_energy(received))
        residual_energy.append(_energy(canceller.cancel(received, reference[at : at + frame])))
    canceller.close()
    for begin, end in ((0.5, 1.0), (1.0, 2.0), (2.0, 5.0), (5.0, 20.0)):
        part = slice(int(begin * 1000 / FRAME_MS), int(end * 1000 / FRAME_MS))
        yield 10 * float(np.log10(sum(echo_energy[part]) / sum(residual_energy[part])))


def false_pauses(rate: int, level: int) -> int:
    """Pauses of playout and barge-ins while the agent alone speaks for 20 s: each of the delays, with and without
    reverberation and distortion."""
    rooms = [Room(rate, level, delay) for delay in DELAYS]
    rooms += [replace(room, reverberation_s=0.4, distortion=3.0) for room in rooms]
    _, listeners = run_calls(rooms, [silence(0)] * len(rooms))
    return sum(len(listener.of(PlayoutPaused)) + len(listener.of(BargeIn)) for listener in listeners)


def pause_latencies(rate: int, level: int) -> list[float]:
    """Times from the caller's first sound to the pause of playout with minInterruptionDuration 100 ms, in ms; infinite
    if playout did not pause."""
    cases = list(product((1300, 4000, 7000), DELAYS[1::2], SENTENCES, ("rms", "awb")))
    callers = [np.concatenate([silence(at, rate), speech(text, rate, voice)]) for at, _, text, voice in cases]
    harness, listeners = run_calls([Room(rate, level, delay) for _, delay, _, _ in cases], callers, sentences=2)
    starts = [harness.start_ms + at for at, _, _, _ in cases]
    pauses = [[event.at_ms for event in listener.of(PlayoutPaused)] for listener in listeners]
    return [times[0] - start if times else float("inf") for times, start in zip(pauses, starts, strict=True)]


def cpu_percent(rate: int, level: int) -> float:
    """CPU of the engine's ticks per call while the agent speaks, % of a core."""
    port = EchoPort(CPU_CALLS)
    harness = EngineHarness(port=port)
    agent_speech = monologue(rate, 3)
    for _ in range(CPU_CALLS):
        call, _, _ = harness.call(silence(0), rate=rate)
        port.rooms[call.slot] = Room(rate, level, 150)
        call.playout.begin("text")
        call.playout.write(agent_speech)
    ticks, cpu_s = len(agent_speech) * 50 // rate, 0.0
    for _ in range(ticks):
        port.step()
        before = time.process_time()
        harness.engine.tick()
        cpu_s += time.process_time() - before
        harness.loop.run()
    return cpu_s / (ticks * 0.02 * CPU_CALLS) * 100


def tick_times(rate: int, call_count: int) -> tuple[float, float, float, int]:
    """Agents that begin to speak at the same time in `call_count` calls with an echo. Returns the CPU time of the
    longest tick and the median of the last 2 s (ms), the time from the first word until the filters of all calls have
    converged (ms; infinite if not within 8 s), and the number of false pauses."""
    port = EchoPort(call_count)
    harness = EngineHarness(port=port)
    calls = [harness.call(silence(0), rate=rate) for _ in range(call_count)]
    port.rooms.update({call.slot: Room(rate, -20, DELAYS[i % len(DELAYS)]) for i, (call, _, _) in enumerate(calls)})
    harness.run(AGENT_START_MS)
    agent_speech = monologue(rate, 3)
    for call, _, _ in calls:
        call.playout.begin("text")
        call.playout.write(agent_speech)
        call.playout.end()
    ticks_ms, converged = list[float](), list[int]()
    with capture_logs() as logs:
        for _ in range(TICKS_MS // TICK_MS):
            port.step()
            before = time.thread_time()
            harness.engine.tick()
            ticks_ms.append((time.thread_time() - before) * 1000)
            harness.loop.run()
            converged.append(sum(entry["event"] == "echo.found" for entry in logs))
    all_converged_ms = next((i * TICK_MS for i, count in enumerate(converged) if count >= call_count), float("inf"))
    pauses = sum(len(listener.of(PlayoutPaused)) for _, listener, _ in calls)
    return max(ticks_ms), median(ticks_ms[-2000 // TICK_MS :]), all_converged_ms, pauses


def _energy(samples: Samples) -> float:
    return float((samples.astype(np.float64) ** 2).sum()) + 1.0


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one rate, one level and one call, to prove that it works")
    quick = parser.parse_args().quick
    rates = RATES[:1] if quick else RATES
    logs.configure("error", "console")
    print(
        "| rate, Hz | echo, dB | attenuation by the filter, dB: 0.5-1 / 1-2 / 2-5 / 5-20 s | false pauses in 160 s |",
        end="",
    )
    print(" pause after the caller's first sound, ms: p50 / max (n) | CPU, % of a core |\n" + "|---" * 6 + "|")
    for rate, level in product(rates, LEVELS[:1] if quick else (*LEVELS, NO_ECHO)):
        echo = level != NO_ECHO
        attenuation = " / ".join(f"{value:.0f}" for value in echo_attenuations(Room(rate, level, 150))) if echo else ""
        latencies = pause_latencies(rate, level)
        pauses = f"{median(latencies):.0f} / {max(latencies):.0f} ({len(latencies)})"
        name, cpu = str(level) if echo else "none", cpu_percent(rate, level)
        print(f"| {rate} | {name} | {attenuation} | {false_pauses(rate, level)} | {pauses} | {cpu:.2f} |", flush=True)
    print(
        "\n| rate, Hz | calls | longest tick, ms of CPU time | median tick | all converged after, ms | false pauses |"
    )
    print("|---" * 6 + "|")
    logs.configure("info", "console")
    for rate, calls in product(rates, CONCURRENT_CALLS[:1] if quick else CONCURRENT_CALLS):
        longest, typical, converged_ms, false = tick_times(rate, calls)
        print(f"| {rate} | {calls} | {longest:.1f} | {typical:.1f} | {converged_ms:.0f} | {false} |", flush=True)


if __name__ == "__main__":
    main()
