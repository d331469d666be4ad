"""How long a turn takes, over real SIP and RTP: the gap before the answer beyond `turnEndpointDelay`, and the time from
the caller's first sound to silence on the wire when it interrupts. The models answer at once: the rest is ours.

Measured on the wire of the loopback interface: the end of speech is the sending of the last packet with sound of the
caller, the answer is the first packet with sound of the agent, sound being a peak of 1 % of full scale.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from bench.scripted import instant_models
from bench.wire import Wire
from config import logging as logs
from config.settings import Settings
from storage import agents, organizations, phone_numbers
from storage.agents import AgentFields
from storage.phone_numbers import PhoneNumberFields
from trunkline.caller import Script
from trunkline.serve import Server, running

SOUND: Final = 328
"""1 % of full scale."""
PORTS: Final = range(40000, 41000)
NUMBER: Final = "2000"
SHORT_ANSWER: Final = "All right, I have noted that."
LONG_ANSWER: Final = (
    "Our office is open from nine to five on every weekday, and on the first Saturday of the month from ten to twelve, "
    "and you will find it next to the train station, behind the old post office and the new library"
)
LINES: Final = (
    "please write down that I will come tomorrow",
    "what are your opening hours",
    "where is your office",
    "I would like to make an appointment",
    "my number is forty two",
    "can you call me back",
)
FAINT: Final = 24
"""What remains of silence after G.711, and no speech."""
PAUSE_S: Final = 0.4
"""Sound that follows after a shorter silence belongs to the same speech."""


@dataclass(frozen=True)
class Spell:
    """Speech on the wire, s."""

    start_s: float
    end_s: float


def spells(times: NDArray[np.float64], peaks: NDArray[np.int32], least: int = SOUND) -> list[Spell]:
    """Stretches of packets with sound: a peak of at least `least`."""
    loud = times[peaks >= least]
    if not len(loud):
        return []
    breaks = np.nonzero(np.diff(loud) > PAUSE_S)[0]
    starts, ends = np.concatenate(([0], breaks + 1)), np.concatenate((breaks, [len(loud) - 1]))
    return [Spell(float(loud[a]), float(loud[b])) for a, b in zip(starts, ends, strict=True)]


async def measure(turns: int, delay_ms: int, barge_after_ms: int | None) -> tuple[list[Spell], list[Spell]]:
    """One call with so many turns; the caller's and the agent's speech as they were on the wire."""
    answer = SHORT_ANSWER if barge_after_ms is None else LONG_ANSWER
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings().with_changes(
            {
                "data_dir": folder,
                "api": {"host": "127.0.0.1", "port": 0},
                "sip": {"host": "127.0.0.1", "port": 0, "rtp_ports": f"{PORTS[0]}-{PORTS[-1]}", "codecs": ["PCMU"]},
            }
        )
        async with running(settings, lambda _: instant_models(answer)) as server:
            await _prepare(server, delay_ms)
            lines = [LINES[turn % len(LINES)] for turn in range(turns)]
            script = Script(
                uri=f"sip:{NUMBER}@127.0.0.1:{server.sip_port}", lines=lines, first=True,
                patience_ms=700, hang_up=True, barge_after_ms=barge_after_ms,
            )  # fmt: skip
            with Wire(PORTS) as wire:
                await _call(script)
    return _both_sides(wire, SOUND if barge_after_ms is None else FAINT)


def _both_sides(wire: Wire, agent_least: int) -> tuple[list[Spell], list[Spell]]:
    """What the caller and the agent said. For interruptions even the agent's faintest sound counts: a pause of speech
    is not taken for the end of playout."""
    caller = {packet.source for packet in wire.packets if packet.source not in PORTS}
    agent = {packet.source for packet in wire.packets if packet.source in PORTS}
    return spells(*wire.stream(caller.pop())), spells(*wire.stream(agent.pop()), agent_least)


async def _prepare(server: Server, delay_ms: int) -> None:
    def prepare(conn: sa.Connection) -> None:
        organization = organizations.create(conn, "bench")
        agent = agents.create(conn, organization.id, AgentFields(name="bench", turn_endpoint_delay=delay_ms))
        number = PhoneNumberFields(
            name="bench", number=NUMBER, provider="sip", sip_mode="ip_allowlist", sip_ip="127.0.0.1", agent_id=agent.id
        )
        phone_numbers.create(conn, organization.id, number)

    await server.database.write(prepare)
    await server.sources.refresh()


async def _call(script: Script) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trunkline.caller", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    await process.communicate(json.dumps(asdict(script)).encode())
    if process.returncode != 0:
        raise RuntimeError(f"the caller failed with status {process.returncode}")


def response_gaps(caller: list[Spell], agent: list[Spell], delay_ms: int) -> list[float]:
    """ms beyond the delay, from each end of the caller's speech to the next beginning of the agent's."""
    ends = [spell.end_s for spell in caller]
    found = []
    for end, until in zip(ends, [*ends[1:], float("inf")], strict=True):
        starts = [spell.start_s for spell in agent if end < spell.start_s < until]
        if starts:
            found.append((starts[0] - end) * 1000 - delay_ms)
    return found


def stop_times(caller: list[Spell], agent: list[Spell]) -> list[float]:
    """ms from the caller's first sound over the agent to the agent's last."""
    return [
        (over.end_s - spell.start_s) * 1000
        for spell in caller
        for over in agent
        if over.start_s < spell.start_s < over.end_s
    ]


def _summary(values: list[float]) -> dict[str, Any]:
    if not values:
        raise RuntimeError("nothing was measured")
    p50, p95 = np.percentile(values, [50, 95])
    return {"n": len(values), "p50_ms": round(p50, 1), "p95_ms": round(p95, 1), "max_ms": round(max(values), 1)}


async def run(turns: int = 30) -> list[dict[str, Any]]:
    """The rows of the table."""
    rows = []
    for delay_ms in (100, 300):
        caller, agent = await measure(turns, delay_ms, None)
        gaps = response_gaps(caller, agent, delay_ms)
        rows.append({"what": f"response gap beyond turnEndpointDelay {delay_ms} ms", **_summary(gaps)})
    caller, agent = await measure(turns, 100, 1500)
    rows.append({"what": "barge-in: first sound to silence, minInterruptionDuration 100 ms",
                 **_summary(stop_times(caller, agent))})  # fmt: skip
    return rows


def main() -> None:
    """Print the rows as JSON; an argument is the number of turns."""
    logs.configure("warning", "console")
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    for row in asyncio.run(run(turns)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
