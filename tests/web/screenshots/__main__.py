"""Take the pictures of the dashboard that its documentation shows.

    python -m tests.web.screenshots [--only NAME] [--png FOLDER]

A real server with the built-in models serves a sample organization (`sample_data`), and Chromium opens each screen. The
call of the screen "Try it" is a real one. Times are those of `sample_data.NOW`, but for what is live.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import tempfile
import wave
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from playwright.async_api import FloatRect, Page, Route, expect

from calls.admission.refused_invites import RefusedInvite
from calls.conversation.idle_timer import HoldChanged
from calls.live.live_call import AudioQuality
from config import logging
from config.clock import iso, utc_now
from config.settings import Settings
from media.turn_taking.events import AgentStarted, TurnEnded
from storage.accounts import api_keys, organizations
from storage.users.users import Role
from tests.media.speech import speech
from tests.trunkline.api_client import Client
from tests.trunkline.initial_data import copy_initial_data
from tests.trunkline.server_process import LOOPBACK, merged
from tests.web.conftest import session_cookie
from tests.web.dashboard import Dashboard, dashboard
from tests.web.screenshots import sample_call, sample_data
from tests.web.screenshots.sample_data import NOW, SampleData
from trunkline.server.server import Server
from trunkline.server.startup import running_server

FOLDER: Final = Path("docs/images/dashboard")
QUALITY: Final = 0.82
"""Of WebP: the smallest at which text has no visible fringes."""
WIDE: Final = (1280, 800)
SHORT: Final = (1280, 520)
TAB_HEIGHT: Final = 460
NARROW: Final = (360, 740)
MICROPHONE: Final = ("what are your opening hours", "how much does a cleaning cost")
ENCODE: Final = """async ([source, quality]) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${source}`)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").drawImage(image, 0, 0);
  const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality })).arrayBuffer());
  return btoa(Array.from(bytes, (each) => String.fromCharCode(each)).join(""));
}"""


@dataclass(frozen=True)
class Screen:
    """One picture. `prepare` brings the page into the state to show."""

    name: str
    path: str
    prepare: Callable[[Page], Awaitable[Any]]
    size: tuple[int, int] = WIDE
    dark: bool = False
    live: bool = False
    """The times are those of the server."""
    role: Role = "owner"
    tab: bool = False
    """Of the page only the tabs and the panel of the chosen one, down to `TAB_HEIGHT`."""


def click(role: Any, name: str, then: Callable[[Page], Awaitable[Any]] | None = None) -> Callable[[Page], Any]:
    """Returns what clicks an element, and goes on."""

    async def act(page: Page) -> None:
        await page.get_by_role(role, name=name, exact=True).click()
        if then is not None:
            await then(page)

    return act


def shows(text: str) -> Callable[[Page], Any]:
    """Returns what waits for a text."""

    async def act(page: Page) -> None:
        await expect(page.get_by_text(text).filter(visible=True).first).to_be_visible()

    return act


async def search(page: Page) -> None:
    """Ask the documents."""
    await page.get_by_label("Question").fill("What does a cleaning cost?")
    await page.get_by_role("button", name="Search").click()
    await expect(page.get_by_text("sixty dollars").first).to_be_visible()


async def call_agent(page: Page) -> None:
    """Talk to the agent until it has answered two questions."""
    await page.get_by_role("button", name="Call", exact=True).click()
    turn = page.get_by_role("listitem").filter(has_text="Turn 1")
    await expect(turn).to_contain_text("until the answer", timeout=60_000)


async def chat(page: Page) -> None:
    """Ask two questions in writing."""
    await page.get_by_role("button", name="Start a chat").click()
    answers = page.get_by_role("log").get_by_text("until the answer")
    for number, question in enumerate(MICROPHONE):
        await page.get_by_label("Message", exact=True).fill(f"{question.capitalize()}?")
        await page.keyboard.press("Enter")
        await expect(answers).to_have_count(number + 1)
    await page.get_by_role("region", name="Chat test").scroll_into_view_if_needed()


async def replay(page: Page) -> None:
    """Try a longer pause on the recording."""
    await page.get_by_label("Pause that ends a turn, ms").fill("1500")
    await page.get_by_role("button", name="Replay").click()
    turns = page.get_by_role("region", name="Turn by turn")
    await expect(turns).to_be_visible(timeout=120_000)
    await turns.evaluate("each => each.scrollIntoView({ block: 'end' })")


async def play_from(page: Page, text: str) -> None:
    """Put the recording at a line of the transcript."""
    entry = page.locator(".entry").filter(has_text=text)
    await entry.get_by_role("button").first.click()
    await page.evaluate("scrollTo(0, 0); document.activeElement.blur()")


def screens(data: SampleData, call_id: str) -> list[Screen]:
    """The pictures of what is stored."""
    agent, call = f"/agents/{data.agents['Harbour Dental']}", f"/calls/{call_id}"
    moment = partial(play_from, text="Done: your cleaning")
    overview, transcript = shows("Why calls ended"), shows("a quarter to four")
    return [
        Screen("sign-in", "/sign-in", shows("Password")),
        Screen("overview", "/overview", overview),
        Screen("overview-dark", "/overview", overview, dark=True),
        Screen("calls", "/calls", shows("Completed"), SHORT),
        Screen("calls-narrow", "/calls", shows("Completed"), NARROW),
        Screen("call", call, moment),
        Screen("call-dark", call, moment, dark=True),
        Screen("call-narrow", call, transcript, NARROW),
        Screen("call-turns", f"{call}?tab=turns", shows("Turn 6"), tab=True),
        Screen("call-replay", f"{call}?tab=replay", replay),
        Screen("call-summary", f"{call}?tab=analysis", shows("The caller moved"), tab=True),
        Screen("call-media", f"{call}?tab=media", shows("MOS"), tab=True),
        Screen("call-sip", f"{call}?tab=sip", shows("180 Ringing"), tab=True),
        Screen("call-webhooks", f"{call}?tab=webhooks", shows("temporarily unavailable"), tab=True),
        Screen("agents", "/agents", shows("Night line")),
        Screen("agent", agent, shows("System prompt")),
        Screen("agent-versions", f"{agent}?tab=versions", shows("Difference of version")),
        Screen("phone-numbers", "/phone-numbers", shows("Listening")),
        Screen("phone-number", f"/phone-numbers?number={data.number_id}", shows("Save")),
        Screen("knowledge", f"/knowledge?agentId={data.agents['Harbour Dental']}", search),
        Screen("tools", "/tools", shows("free_times")),
        Screen("tool", "/tools", click("link", "find_appointment", shows("Send the request"))),
        Screen("voices", "/voices", shows("flite")),
        Screen("models", "/models", shows("Recogni")),
        Screen("models-available", "/models?tab=available", shows("Download"), role="operator"),
        Screen("settings", "/settings", shows("Booking system"), SHORT),
        Screen("settings-users", "/settings?tab=users", shows("clara"), SHORT),
        Screen("settings-audit", "/settings?tab=audit", shows("Changed the agent"), SHORT),
    ]


def live_screens(data: SampleData, live_id: str) -> list[Screen]:
    """The pictures of live calls."""
    return [
        Screen("live", f"/live?call={live_id}", shows("Tuesday at ten"), live=True),
        Screen("agent-try", f"/agents/{data.agents['Harbour Dental']}?tab=try", call_agent, live=True),
        Screen("agent-chat", f"/agents/{data.agents['Harbour Dental']}?tab=try", chat, live=True),
    ]


def main() -> None:
    """Write the pictures and print their sizes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", help="names of pictures")
    parser.add_argument("--png", type=Path, help="also write each as PNG to this folder")
    options = parser.parse_args()
    logging.configure("error", "console")
    asyncio.run(_take_all(options.only, options.png))


async def _take_all(only: list[str] | None, png: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with _sample_server(Path(folder) / "data") as (server, data, call_id):
            cookies = {
                "owner": await session_cookie(server.database, data.organization_id, "owner", sample_data.OWNER),
                "operator": await session_cookie(server.database, None, "operator"),
            }
            microphone = _microphone(Path(folder) / "microphone.wav")

            async def take(wanted: list[Screen]) -> None:
                for screen in wanted:
                    if only is None or screen.name in only:
                        await _take(server, cookies[screen.role], screen, microphone, png)

            await take(screens(data, call_id))
            await take(live_screens(data, await _begin_live_calls(server, data)))


@asynccontextmanager
async def _sample_server(data_dir: Path) -> AsyncIterator[tuple[Server, SampleData, str]]:
    copy_initial_data(data_dir)
    changes: dict[str, Any] = {
        "sip": {"port": 0},
        "api": {"port": 0},
        "log_level": "error",
        "dashboard": {"listen": True},
    }
    async with running_server(Settings(data_dir=data_dir).with_changes(merged(LOOPBACK, changes))) as server:
        write = server.database.write
        owner = await write(lambda conn: organizations.create(conn, "Harbour Dental"))
        _, key = await write(lambda conn: api_keys.create(conn, owner.id, name=sample_data.ADMINISTRATION))
        async with Client(server.api_origin, key, set()) as client:
            data = await sample_data.create(client, owner.id)
        await write(lambda conn: sample_data.store_history(conn, data))
        call = await write(lambda conn: sample_call.store(conn, data, data_dir, NOW - timedelta(minutes=4)))
        await write(sample_data.backdate)
        await write(lambda conn: sample_data.store_users(conn, data))
        for number, dialled, code, why in (
            (data.number_id, sample_data.NUMBER, 486, "too many concurrent calls"),
            (None, "+12025550199", 404, "unknown number"),
        ):
            refused = RefusedInvite(
                NOW - timedelta(minutes=50 + code), number, "192.0.2.10", dialled, "+12025550171", code, why
            )
            server.calls.refused_invites.add(owner.id, refused)
        yield server, data, call.id


async def _begin_live_calls(server: Server, data: SampleData) -> str:
    """Begin calls; returns the id of the one whose words are shown."""
    live_calls, now, ids = server.calls._deps.live_calls, utc_now(), []
    for number, seconds in enumerate((12, 41, 74, 133)):
        agent = "Appointment reminder" if number == 1 else "Harbour Dental"
        began, customer = now - timedelta(seconds=seconds), f"+1202555011{number}"
        call = await server.database.write(
            partial(sample_data.live_call, data=data, customer=customer, began=began, agent=agent)
        )
        live_calls.begin(call)
        live, speech_end = live_calls.of(call), TurnEnded(0.0, 0.0, 0.0, "model")
        for event in ([], [speech_end], [AgentStarted(0.0)], [HoldChanged(True)])[number]:
            live.on_event(event)
        live._gap_ms, live._quality = 540 + 90 * number, AudioQuality(0.002 * number, 4.4 - number / 10, 0.0, 4.4)
        ids.append(call)
    return ids[2].id


async def _take(server: Server, cookie: str, screen: Screen, microphone: Path, png: Path | None) -> None:
    flags = (
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone}%noloop",
    )
    width, height = screen.size
    signed_in = None if screen.name == "sign-in" else cookie
    async with dashboard(
        server.api_origin,
        signed_in,
        flags,
        viewport={"width": width, "height": height},
        color_scheme="dark" if screen.dark else "light",
        reduced_motion="reduce",
        timezone_id="UTC",
        locale="en-GB",
    ) as browser:
        if not screen.live:
            await browser.context.clock.set_fixed_time(NOW)
            await browser.context.route("**/v1/statistics?*", _until_now)
        page = await browser.open(screen.path)
        await screen.prepare(page)
        await expect(page.get_by_text("Loading…")).to_have_count(0)
        if screen.path.startswith("/calls/"):
            await expect(page.locator(".markers")).to_be_visible()
        await page.evaluate("document.fonts.ready")
        picture = await page.screenshot(
            animations="disabled", caret="hide", full_page=screen.tab, clip=await _tab(page) if screen.tab else None
        )
        await _write(browser, screen.name, picture)
        if png is not None:
            (png / f"{screen.name}.png").write_bytes(picture)


async def _tab(page: Page) -> FloatRect:
    """The place of the tabs and the panel of the chosen one, in the whole page."""
    await page.evaluate("scrollTo(0, 0)")
    tabs = await page.get_by_role("tablist").bounding_box()
    panel = await page.get_by_role("tabpanel").bounding_box()
    assert tabs is not None and panel is not None
    height = min(panel["y"] + panel["height"] - tabs["y"], TAB_HEIGHT)
    return {"x": tabs["x"] - 16, "y": tabs["y"], "width": tabs["width"] + 32, "height": height + 16}


async def _until_now(route: Route) -> None:
    await route.continue_(url=f"{route.request.url}&until={quote(iso(NOW))}")


async def _write(browser: Dashboard, name: str, picture: bytes) -> None:
    """Write a picture, which Chromium compresses."""
    blank = await browser.context.new_page()
    encoded = await blank.evaluate(ENCODE, [base64.b64encode(picture).decode(), QUALITY])
    content = base64.b64decode(encoded)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.webp").write_bytes(content)
    print(f"{name}.webp\t{len(content) / 1000:.0f} kB", flush=True)


def _microphone(path: Path) -> Path:
    """A file with the caller's questions, for the browser's microphone."""
    if not path.exists():
        pause = np.zeros(16000 * 7, np.int16)
        pieces = [pause, *(piece for each in MICROPHONE for piece in (speech(each, 16000, "rms"), pause)), pause, pause]
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(np.concatenate(pieces).astype("<i2").tobytes())
    return path


if __name__ == "__main__":
    main()
