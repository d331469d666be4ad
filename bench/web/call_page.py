"""The page of a call of an hour with 300 turns, the list of 10,000 calls, and the first view, in Chromium.

    python -m bench.web.call_page [--turns N] [--minutes N] [--calls N] [--seconds N]

The server, the browser and this program share the machine. The frame times are those between two pictures that the page
draws; before each measurement the page is loaded, and nothing else changes.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import sqlalchemy as sa
from playwright.async_api import Page

from bench.web.live_page import MEASURE, session
from calls.call_record.timeline import TimelineTurn, ToolTiming
from config.clock import utc_now
from media.recording import wav_header
from storage import tables
from storage.calls import calls, recordings
from storage.calls.calls import Call, TranscriptItem
from tests.contract.server import Server, serve
from tests.web.dashboard import Dashboard, dashboard

RATE: Final = 8000
SETTLE_MS: Final = 1500
QUESTION: Final = "I would like to know whether you have a berth for a yacht of twelve metres from Friday on"
ANSWER: Final = (
    "Yes, there is one at the south pier, which has water and power. It is free from Friday to Tuesday, and the fee is "
    "thirty euros a night. Shall I reserve it in your name?"
)
SCROLL: Final = """pixels => { let last = 0; const step = now => {
  const most = document.documentElement.scrollHeight - innerHeight;
  scrollBy(0, pixels * (now - (last || now)) / 1000); last = now;
  if (scrollY >= most) scrollTo(0, 0);
  window.scrolling = requestAnimationFrame(step); }; window.scrolling = requestAnimationFrame(step); }"""
STOP: Final = "cancelAnimationFrame(window.scrolling)"
LOADED: Final = """() => { const all = [...performance.getEntriesByType('navigation'),
  ...performance.getEntriesByType('resource')];
  return [all.reduce((sum, each) => sum + each.transferSize, 0), all.length]; }"""


def main() -> None:
    """Print the figures as Markdown tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        data_dir.mkdir()
        with serve(data_dir) as server:
            organization_id, _ = server.organization()
            call = server.write(
                partial(_long_call, owner=organization_id, turns=options.turns, minutes=options.minutes)
            )
            path = recordings.path_of(server.services.settings.data_dir, call.id, call.created_at)
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_recording(path, options.turns, options.minutes)
            server.write(partial(_short_calls, owner=organization_id, count=options.calls))
            asyncio.run(_measure(server, organization_id, call.id, options.seconds))


async def _measure(server: Server, organization_id: str, call_id: str, seconds: float) -> None:
    cookie = server.write(partial(session, organization_id=organization_id))
    address = f"http://127.0.0.1:{server.port}"
    for _ in range(2):  # the first fills the server's caches
        async with dashboard(address, cookie) as browser:
            await _first_view(browser)
    async with dashboard(address, cookie) as browser:
        print("\n| page | frames/s | frame p50, ms | p95, ms | p99, ms | longest, ms | longest task, ms |")
        print("|---|---|---|---|---|---|---|")
        page = await browser.open(f"/calls/{call_id}")
        await page.get_by_role("tab", name="Transcript").wait_for()
        await page.locator(".entry").first.wait_for()
        await page.get_by_role("slider").wait_for()
        await _scrolled(page, "the transcript scrolls", seconds)
        await (
            page.get_by_role("button", name="Play from 30:00").or_(page.locator(".entry button").nth(50)).first.click()
        )
        await page.get_by_role("button", name="Play", exact=True).click()
        await _frames(page, "the recording plays", seconds)
        await page.get_by_role("button", name="Pause").click()
        await page.get_by_role("tab", name="Turns").click()
        await page.locator(".turn").first.wait_for()
        await _scrolled(page, "the turns scroll", seconds)
        page = await browser.open("/calls")
        await page.get_by_role("row").nth(2).wait_for()
        await _scrolled(page, "the list scrolls", seconds)
        begun = asyncio.get_running_loop().time()
        turned = 10
        for number in range(turned):
            await page.get_by_role("button", name="Older calls").click()
            await page.get_by_text(f"{50 * (number + 1) + 1} to {50 * (number + 2)} of ").wait_for()
        took_ms = (asyncio.get_running_loop().time() - begun) / turned * 1000
        print(f"\nThe next page of the list is there after {took_ms:.0f} ms.")


async def _first_view(browser: Dashboard) -> None:
    """The overview, from the address to the first heading, in a browser without a cache."""
    page = await browser.open("/")
    await page.get_by_role("heading", level=1).wait_for()
    ready_ms = await page.evaluate("performance.now()")
    await page.wait_for_timeout(SETTLE_MS)
    sent, requests = await page.evaluate(LOADED)
    print(f"First view: {sent / 1000:.0f} kB compressed in {requests} requests, interactive after {ready_ms:.0f} ms.")
    await page.close()


async def _scrolled(page: Page, name: str, seconds: float) -> None:
    await page.wait_for_timeout(SETTLE_MS)
    await page.evaluate(SCROLL, 3000)
    await _frames(page, name, seconds)
    await page.evaluate(STOP)


async def _frames(page: Page, name: str, seconds: float) -> None:
    measured: dict[str, Any] = await page.evaluate(MEASURE, seconds)
    frames = np.array(measured["frames"][1:])
    figures = (*np.percentile(frames, [50, 95, 99]), frames.max())
    shown = " | ".join(f"{each:.1f}" for each in figures)
    print(f"| {name} | {len(frames) / seconds:.0f} | {shown} | {measured['longest']:.0f} |")


def _long_call(conn: sa.Connection, owner: str, turns: int, minutes: int) -> Call:
    began, turn_ms = utc_now() - timedelta(minutes=minutes), minutes * 60_000 // turns
    call = _created(conn, owner, 0)
    ended = calls.finish(
        conn,
        call.id,
        status="completed",
        ended_reason="customer_ended",
        answered_at=began,
        ended_at=began + timedelta(minutes=minutes),
        transcript=[item for number in range(turns) for item in _said(number * turn_ms, turn_ms)],
        timeline=[_turn(number + 1, number * turn_ms, turn_ms).to_json(0.0) for number in range(turns)],
        recording=True,
        turn_count=turns,
    )
    return ended or call


def _said(start_ms: int, turn_ms: int) -> list[TranscriptItem]:
    def item(role: str, text: str, begin: float, end: float) -> TranscriptItem:
        first, last = start_ms + round(begin * turn_ms), start_ms + round(end * turn_ms)
        words = [round(each) for each in np.linspace(0, last - first, len(text.split()), endpoint=False)]
        return {"role": role, "content": text, "startMs": first, "endMs": last, "words": words}

    return [item("user", QUESTION, 0.05, 0.4), item("assistant", ANSWER, 0.5, 0.95)]


def _turn(number: int, start_ms: int, turn_ms: int) -> TimelineTurn:
    def at(share: float) -> float:
        return start_ms + share * turn_ms

    return TimelineTurn(
        number,
        ended_by="model",
        eot_probability=0.9,
        speech_start_ms=at(0.05),
        speech_end_ms=at(0.4),
        turn_end_ms=at(0.42),
        text_ready_ms=at(0.43),
        agent_start_ms=at(0.5),
        interrupted_ms=at(0.95) if number % 5 == 0 else None,
        agent_end_ms=at(0.95),
        tools=[ToolTiming("find_berth", at(0.42), at(0.5), True, {"m": 12}, "pier")] if number % 3 == 0 else [],
    )


def _write_recording(path: Path, turns: int, minutes: int) -> None:
    frames = minutes * 60 * RATE // turns
    share = np.arange(frames) / frames
    noise = np.random.default_rng(1).normal(0, 3000, frames)
    caller, agent = noise * ((share > 0.05) & (share < 0.4)), noise * ((share > 0.5) & (share < 0.95))
    turn = np.stack([caller, agent], axis=1).astype("<i2").tobytes()
    with path.open("wb") as file:
        file.write(wav_header(RATE, frames * turns))
        for _ in range(turns):
            file.write(turn)


def _short_calls(conn: sa.Connection, owner: str, count: int) -> None:
    """Ended calls, made of the columns of one."""
    call = _created(conn, owner, 1)
    calls.finish(conn, call.id, status="completed", ended_reason="customer_ended", ended_at=utc_now())
    table = tables.calls
    row = dict(conn.execute(sa.select(table).where(table.c.id == call.id)).mappings().one())
    rows = [
        row | {"id": f"{number:032x}", "created_at": row["created_at"] - timedelta(minutes=number + 90)}
        for number in range(1, count - 1)
    ]
    conn.execute(sa.insert(table), rows)


def _created(conn: sa.Connection, owner: str, number: int) -> Call:
    return calls.create_inbound(
        conn,
        organization_id=owner,
        agent_id="",
        phone_number_id="",
        provider="sip",
        call_sid=f"{number}",
        customer_number=f"+49406{number:06}",
        called_number="+4940123456",
    )


if __name__ == "__main__":
    main()
