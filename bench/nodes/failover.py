"""Three servers behind Kamailio, with the files of docs/how-to/pbx/kamailio-cluster: the time until a call is answered
after `kill -9` of a server, with and without a probe in between, the time until the server takes calls again, and the
calls per second and their setup time through Kamailio against those without it.

Servers, Kamailio and the callers share the machine. Callers are raw phones of this process; each hangs up at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.worker_process import machine
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.pbx.kamailio_cluster import PBX, Cluster, Node, open_cluster
from tests.trunkline.sip_phone import PhoneCall

NUMBER: Final = "105"
KILLS: Final = 5
SETUPS: Final = 100
CALLERS: Final = 4
SECONDS: Final = 10.0
Row = dict[str, Any]


async def setup_ms(target: str) -> tuple[float, float]:
    """Makes a call; returns the times from INVITE to 180 and to 200, ms. Raises `RuntimeError` if it is refused."""
    async with RawPhone(target, PBX) as phone:
        return await _setup_ms(phone)


async def _setup_ms(phone: RawPhone) -> tuple[float, float]:
    call, began_s = PhoneCall(phone, NUMBER), time.perf_counter()
    phone.invite(call.dialog, call.offer())
    ringing_ms = None
    while (answer := await phone.next_message()).status < 200 or not answer.header("CSeq").endswith("INVITE"):
        if answer.status == 180:
            ringing_ms = 1000 * (time.perf_counter() - began_s)
    answered_ms = 1000 * (time.perf_counter() - began_s)
    if answer.status != 200:
        raise RuntimeError(answer.first_line)
    call.dialog.update_target(answer)
    phone.send(phone.request("ACK", call.dialog))
    await phone.bye(call.dialog)
    return answered_ms if ringing_ms is None else ringing_ms, answered_ms  # 180 may come after 200


def _row(what: str, values_ms: Sequence[float]) -> Row:
    p50, p95, highest = (round(float(each), 1) for each in np.percentile(values_ms, [50, 95, 100]))
    return {"what": what, "n": len(values_ms), "p50_ms": p50, "p95_ms": p95, "max_ms": highest}


async def measure_setup(cluster: Cluster, setups: int) -> list[Row]:
    """One call after another, without and with Kamailio."""
    rows = []
    for what, target in (("without Kamailio", cluster.nodes[0].target), ("through Kamailio", cluster.proxy.target)):
        times = [await setup_ms(target) for _ in range(setups)]
        rows += [_row(f"INVITE to 180, {what}", [ringing for ringing, _ in times])]
        rows += [_row(f"INVITE to 200, {what}", [answered for _, answered in times])]
    return rows


async def measure_rate(cluster: Cluster, callers: int, seconds: float) -> list[Row]:
    """Calls per second of callers that each make one call after another: to one server, to the same one through
    Kamailio, and to all through Kamailio."""
    rows = [await _rate("one server, without Kamailio", cluster.nodes[0].target, callers, seconds)]
    for node in cluster.nodes[1:]:
        await cluster.proxy.set_state(node, "d")
    rows.append(await _rate("one server through Kamailio", cluster.proxy.target, callers, seconds))
    for node in cluster.nodes[1:]:
        await cluster.proxy.set_state(node, "ap")
    rows.append(await _rate("three servers through Kamailio", cluster.proxy.target, callers, seconds))
    return rows


async def _rate(what: str, target: str, callers: int, seconds: float) -> Row:
    end_s, times = time.perf_counter() + seconds, list[float]()

    async def caller() -> None:
        async with RawPhone(target, PBX) as phone:
            while time.perf_counter() < end_s:
                times.append((await _setup_ms(phone))[1])

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    return {**_row(f"{callers} callers, {what}", times), "calls_per_second": round(len(times) / seconds, 1)}


async def measure_kills(cluster: Cluster, kills: int) -> list[Row]:
    """`kill -9`: the call that the dead server would have got, before a probe; the time until a probe has found it, and
    the next call; and the time from the start's `ready` until it takes calls."""
    slowest, found, after_probe, back = (list[float]() for _ in range(4))
    for kill in range(kills):
        node = cluster.nodes[kill % len(cluster.nodes)]
        await node.kill()
        slowest.append(max([(await setup_ms(cluster.proxy.target))[1] for _ in cluster.nodes]))
        back.append(await _restarted_ms(cluster, node))
        await asyncio.sleep(kill / kills)  # spreads the kills over the interval of the probes
        await node.kill()
        found.append(await _elapsed_ms(cluster.proxy.wait_for_state(node, "I")))
        after_probe.append(max([(await setup_ms(cluster.proxy.target))[1] for _ in cluster.nodes]))
        back.append(await _restarted_ms(cluster, node))
    return [
        _row("kill -9: the call that the dead server would get, INVITE to 200", slowest),
        _row("kill -9 without calls: until a probe has found it", found),
        _row("the slowest of the next three calls, INVITE to 200", after_probe),
        _row("from `ready` of its start until it takes calls", back),
    ]


async def _restarted_ms(cluster: Cluster, node: Node) -> float:
    await node.start()
    return await _elapsed_ms(cluster.proxy.wait_for_state(node, "A"))


async def _elapsed_ms(work: Awaitable[None]) -> float:
    began_s = time.perf_counter()
    await work
    return 1000 * (time.perf_counter() - began_s)


async def run(kills: int = KILLS, setups: int = SETUPS, callers: int = CALLERS, seconds: float = SECONDS) -> list[Row]:
    """The rows of the table."""
    settings: dict[str, Any] = {"limits": {"max_calls": 100}, "sip": {"max_invites_per_second": 10_000}}
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
        async with open_cluster(Path(folder), **settings) as cluster:
            await cluster.number(NUMBER, {"customerSilenceMs": 0, "systemPrompt": "Yes."}, sipSources=[PBX])
            for node in cluster.nodes:
                await node.event("api.request", method="POST", path="/v1/phone-numbers")
            rows = await measure_setup(cluster, setups)
            rows += await measure_rate(cluster, callers, seconds)
            await cluster.all_active()
            return [*rows, *await measure_kills(cluster, kills)]


def main() -> None:
    """Prints the machine and the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--setups", type=int, default=SETUPS, help="calls one after another")
    parser.add_argument("--callers", type=int, default=CALLERS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    print(json.dumps(machine()), flush=True)
    for row in asyncio.run(run(options.kills, options.setups, options.callers, options.seconds)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
