"""The agent on a loudspeaker: `python -m bench.audio.echo` prints what the filter takes out, false pauses, how fast a
caller interrupts through the echo, what it costs, and how long many lines at once hold up the tick thread. Simulated
lines on a virtual clock; flite speaks for both sides."""

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
from tests.media.engine.test_engine import EngineHarness, Listener
from tests.media.speech import silence, speech

RATES: Final = (8000, 16000)
LEVELS: Final = (-10, -20, -30)
DELAYS: Final = (50, 150, 300, 400)
NO_ECHO: Final = -200
COST_LINES: Final = 10
TICKS_MS: Final = 8000
AT_ONCE: Final = (1, 10, 50)
AGENT_FROM_MS: Final = 500
WORDS: Final = ("can I speak to a person", "no thank you that is wrong", "hold on please wait a moment")


def talk(rooms: list[Room], callers: list[Samples], sentences: int = 5) -> tuple[EngineHarness, list[Listener]]:
    """Let the agent speak on all lines at once, to its end."""
    port = EchoPort(len(rooms))
    harness = EngineHarness(port=port)
    calls = [harness.call(caller, rate=room.rate) for room, caller in zip(rooms, callers, strict=True)]
    port.rooms.update({call.slot: room for (call, _, _), room in zip(calls, rooms, strict=True)})
    harness.run(AGENT_FROM_MS)
    words = monologue(rooms[0].rate, sentences)
    for call, _, _ in calls:
        call.playout.begin("text")
        call.playout.write(words)
        call.playout.end()
    harness.run(len(words) * 1000 // rooms[0].rate + 1000)
    return harness, [listener for _, listener, _ in calls]


def taken_out(room: Room) -> Iterator[float]:
    """dB that the filter alone takes out from 0.5, 1, 2 and 5 s on to the next of them, the last to 20 s."""
    frame, said = FRAME_MS * room.rate // 1000, monologue(room.rate)
    late = np.concatenate([silence(room.delay_ms - LEAD_MS, room.rate), said])
    canceller = SpeexLibrary().create_filter(room.rate)
    came, left = [], []
    for at in range(0, len(said) - frame, frame):
        heard = room.receive(said[at : at + frame], silence(FRAME_MS, room.rate))
        came.append(_energy(heard))
        left.append(_energy(canceller.cancel(heard, late[at : at + frame])))
    canceller.close()
    for begin, end in ((0.5, 1.0), (1.0, 2.0), (2.0, 5.0), (5.0, 20.0)):
        part = slice(int(begin * 1000 / FRAME_MS), int(end * 1000 / FRAME_MS))
        yield 10 * float(np.log10(sum(came[part]) / sum(left[part])))


def false_pauses(rate: int, level: int) -> int:
    """Of 20 s of the agent alone at each of the delays, with two voice-like rooms."""
    rooms = [Room(rate, level, delay) for delay in DELAYS]
    rooms += [replace(room, reverberation_s=0.4, distortion=3.0) for room in rooms]
    _, listeners = talk(rooms, [silence(0)] * len(rooms))
    return sum(len(listener.of(PlayoutPaused)) + len(listener.of(BargeIn)) for listener in listeners)


def interruptions(rate: int, level: int) -> list[float]:
    """ms from the caller's first sound to the pause, minInterruptionDuration 100 ms; infinite where there is none."""
    lines = list(product((1300, 4000, 7000), DELAYS[1::2], WORDS, ("rms", "awb")))
    callers = [np.concatenate([silence(at, rate), speech(text, rate, voice)]) for at, _, text, voice in lines]
    harness, listeners = talk([Room(rate, level, delay) for _, delay, _, _ in lines], callers, sentences=2)
    starts = [harness.start_ms + at for at, _, _, _ in lines]
    pauses = [[event.at_ms for event in listener.of(PlayoutPaused)] for listener in listeners]
    return [found[0] - start if found else float("inf") for found, start in zip(pauses, starts, strict=True)]


def cost_percent(rate: int, level: int) -> float:
    """Share of a core that the engine's ticks take for a call while the agent speaks, %."""
    port = EchoPort(COST_LINES)
    harness = EngineHarness(port=port)
    words = monologue(rate, 3)
    for _ in range(COST_LINES):
        call, _, _ = harness.call(silence(0), rate=rate)
        port.rooms[call.slot] = Room(rate, level, 150)
        call.playout.begin("text")
        call.playout.write(words)
    ticks, taken = len(words) * 50 // rate, 0.0
    for _ in range(ticks):
        port.step()
        before = time.process_time()
        harness.engine.tick()
        taken += time.process_time() - before
        harness.loop.run()
    return taken / (ticks * 0.02 * COST_LINES) * 100


def ticks(rate: int, lines: int) -> tuple[float, float, float, int]:
    """Agents that begin at once on so many lines with an echo: ms of CPU time of the longest tick and of the median of
    the last 2 s, ms from their first word until all lines have learned (infinite: not within 8 s), false pauses."""
    port = EchoPort(lines)
    harness = EngineHarness(port=port)
    calls = [harness.call(silence(0), rate=rate) for _ in range(lines)]
    port.rooms.update({call.slot: Room(rate, -20, DELAYS[i % len(DELAYS)]) for i, (call, _, _) in enumerate(calls)})
    harness.run(AGENT_FROM_MS)
    words = monologue(rate, 3)
    for call, _, _ in calls:
        call.playout.begin("text")
        call.playout.write(words)
        call.playout.end()
    taken, found = list[float](), list[int]()
    with capture_logs() as logs:
        for _ in range(TICKS_MS // TICK_MS):
            port.step()
            before = time.thread_time()
            harness.engine.tick()
            taken.append((time.thread_time() - before) * 1000)
            harness.loop.run()
            found.append(sum(entry["event"] == "echo.found" for entry in logs))
    ready = next((i * TICK_MS for i, count in enumerate(found) if count >= lines), float("inf"))
    pauses = sum(len(listener.of(PlayoutPaused)) for _, listener, _ in calls)
    return max(taken), median(taken[-2000 // TICK_MS :]), ready, pauses


def _energy(samples: Samples) -> float:
    return float((samples.astype(np.float64) ** 2).sum()) + 1.0


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one rate, one level and one line, to see that it works")
    quick = parser.parse_args().quick
    rates = RATES[:1] if quick else RATES
    logs.configure("error", "console")
    print(
        "| rate, Hz | echo, dB | taken out by the filter, dB: 0.5-1 / 1-2 / 2-5 / 5-20 s | false pauses in 160 s |",
        end="",
    )
    print(" pause after the caller's first sound, ms: p50 / max (n) | CPU, % of a core |\n" + "|---" * 6 + "|")
    for rate, level in product(rates, LEVELS[:1] if quick else (*LEVELS, NO_ECHO)):
        echo = level != NO_ECHO
        out = " / ".join(f"{value:.0f}" for value in taken_out(Room(rate, level, 150))) if echo else ""
        waits = interruptions(rate, level)
        pauses = f"{median(waits):.0f} / {max(waits):.0f} ({len(waits)})"
        name, cost = str(level) if echo else "none", cost_percent(rate, level)
        print(f"| {rate} | {name} | {out} | {false_pauses(rate, level)} | {pauses} | {cost:.2f} |", flush=True)
    print("\n| rate, Hz | lines | longest tick, ms of CPU time | median tick | all learned after, ms | false pauses |")
    print("|---" * 6 + "|")
    logs.configure("info", "console")
    for rate, lines in product(rates, AT_ONCE[:1] if quick else AT_ONCE):
        longest, usual, ready, false = ticks(rate, lines)
        print(f"| {rate} | {lines} | {longest:.1f} | {usual:.1f} | {ready:.0f} | {false} |", flush=True)


if __name__ == "__main__":
    main()
