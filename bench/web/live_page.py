"""The page of live calls in Chromium while all calls change, and what an event costs the server.

    python -m bench.web.live_page [--calls N] [--per-second N] [--seconds N]

The calls are rows in the database whose states change at random; the server, the browser and this program share the
machine. The frame times are those between two pictures that the page draws.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from api.resources.event_json import EventJson
from calls.conversation.idle_timer import HoldChanged
from calls.live.events import LiveEvents
from calls.live.live_calls import LiveCalls
from config.clock import utc_now
from storage.calls import calls
from storage.calls.calls import Call
from storage.users import sessions, users
from tests.contract.server import Server, serve
from tests.web.dashboard import dashboard

PUBLISHED: Final = 5000
SETTLE_S: Final = 2.0
MEASURE: Final = """seconds => new Promise(resolve => {
  const frames = []; let longest = 0;
  new PerformanceObserver(list => { for (const each of list.getEntries()) longest = Math.max(longest, each.duration); })
    .observe({ type: "longtask" });
  const begun = performance.now(); let last = begun;
  const next = now => {
    frames.push(now - last); last = now;
    if (now - begun < 1000 * seconds) requestAnimationFrame(next); else resolve({ frames, longest });
  };
  requestAnimationFrame(next);
})"""


def main() -> None:
    """Print the figures as Markdown tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--per-second", type=int, default=200, help="events of all calls")
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        data_dir.mkdir()
        with serve(data_dir) as server:
            asyncio.run(_measure_page(server, options.calls, options.per_second, options.seconds))
            _measure_publishing(server)


async def _measure_page(server: Server, count: int, per_second: int, seconds: float) -> None:
    organization_id, _ = server.organization()
    live = LiveCalls(server.services.events)
    stored = [
        server.write(partial(_answered, organization_id=organization_id, number=number)) for number in range(count)
    ]
    states = random.Random(1)

    async def change() -> None:
        for call in stored:
            live.begin(call)
        while True:
            live.of(states.choice(stored)).on_event(HoldChanged(states.random() < 0.5))
            await asyncio.sleep(0.5 / per_second)  # about half of the changes are none

    cookie = server.write(partial(session, organization_id=organization_id))
    async with dashboard(f"http://127.0.0.1:{server.port}", cookie) as browser:
        page = await browser.open("/live")
        await page.get_by_text("Up to date").wait_for()
        changing = asyncio.run_coroutine_threadsafe(change(), server.loop)
        await asyncio.sleep(SETTLE_S)
        await page.get_by_text(f"{count} live calls").wait_for()
        begun = server.services.events.published
        measured: dict[str, Any] = await page.evaluate(MEASURE, seconds)
        told = (server.services.events.published - begun) / seconds
        changing.cancel()
    frames = np.array(measured["frames"][1:])
    p50, p95, p99 = np.percentile(frames, [50, 95, 99])
    print("| calls | events/s | frames/s | frame p50, ms | p95, ms | p99, ms | longest, ms | longest task, ms |")
    print("|---|---|---|---|---|---|---|---|")
    figures = " | ".join(f"{each:.1f}" for each in (p50, p95, p99, frames.max()))
    print(f"| {count} | {told:.0f} | {len(frames) / seconds:.0f} | {figures} | {measured['longest']:.0f} |")


def session(conn: sa.Connection, organization_id: str) -> str:
    """Returns the cookie of a new session of a new user."""
    return sessions.create(conn, users.create(conn, "anna", "viewer", organization_id).id, utc_now())


def _answered(conn: sa.Connection, organization_id: str, number: int) -> Call:
    call = calls.create_inbound(
        conn,
        organization_id=organization_id,
        agent_id="",
        phone_number_id="",
        provider="sip",
        call_sid=f"{number}",
        customer_number=f"+49406{number:06}",
        called_number="+4940123456",
        metadata={"ticket": number},
    )
    calls.mark_answered(conn, call.id, call.created_at)
    return calls.get_by_id(conn, call.id) or call


def _measure_publishing(server: Server) -> None:
    """The processor time of an event, with and without a follower."""
    organization_id, _ = server.organization()
    call = server.write(lambda conn: _answered(conn, organization_id, 0))

    async def measure(*, followed: bool) -> float:
        events = LiveEvents()
        events.encode = EventJson(server.services)
        live = LiveCalls(events).of(call)
        if followed:
            events.follow(organization_id)
        begun = time.process_time()
        for _ in range(PUBLISHED):
            live.publish()
        return (time.process_time() - begun) / PUBLISHED * 1e6

    print("\n| an event of a call | CPU, µs |\n|---|---|")
    for followed in (False, True):
        name = "with followers" if followed else "without a follower"
        print(f"| {name} | {asyncio.run(measure(followed=followed)):.1f} |")


if __name__ == "__main__":
    main()
