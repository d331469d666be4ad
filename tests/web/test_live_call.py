"""The page of a live call with a real server and a SIP phone: listening in, notes to the agent, taking it over."""

from __future__ import annotations

import asyncio
import wave
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Dialog, Page, Route, WebSocketRoute, expect

from api.auth import access_watch
from api.resources.calls import listening
from storage.users.users import Role
from tests.media.speech import speech
from tests.sipcore.tones import tone
from tests.trunkline.phone_calls import LONG, AgentCall, agent_call, scripted
from tests.trunkline.recording_analysis import audible
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.web.conftest import cookie_of_server
from tests.web.dashboard import Dashboard, dashboard
from tests.web.page_audio import RATE, RECORD_OUTPUT, heard_in

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIVE = "This call is live"
WATCH = """
window.microphones = 0;
navigator.mediaDevices.getUserMedia = () => { window.microphones += 1; return Promise.reject(new Error("no")); };
window.peaks = [0, 0];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (...rest) {
  for (const side of [0, 1])
    window.peaks[side] = Math.max(window.peaks[side], ...this.buffer.getChannelData(side));
  return start.apply(this, rest);
};
"""
"""Counts what opens the microphone, and keeps the peaks of what is played."""
KEEP_TRACKS = """
const open = MediaDevices.prototype.getUserMedia;
window.tracks = [];
MediaDevices.prototype.getUserMedia = async function (...wanted) {
  const stream = await open.apply(this, wanted);
  window.tracks.push(...stream.getTracks());
  return stream;
};
"""
"""Keeps the microphones that the page has opened."""

LEVEL = "(name) => document.querySelector(`meter[aria-label='${name}']`).value > 0.3"
"""The level of a side is shown."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module, which allows listening."""
    folder = tmp_path_factory.mktemp("server")
    async with open_local_server(folder, scripted, dashboard={"listen": True}) as local_server:
        yield local_server


@asynccontextmanager
async def live_call(
    server: LocalServer, role: Role = "editor", flags: Sequence[str] = (), watch: str = WATCH
) -> AsyncIterator[tuple[AgentCall, Dashboard, Page]]:
    """A call whose caller hears the agent's greeting, and its page."""
    greeting: dict[str, Any] = {"firstSpeaker": "agent", "agentGreeting": LONG, "agentGreetingEnabled": True}
    async with (
        dashboard(server.server.api_origin, await cookie_of_server(server.server, role), flags) as signed_in,
        agent_call(server, "Yes.", **greeting) as call,
    ):
        await call.agent_begins()
        await signed_in.context.add_init_script(watch)
        page = await signed_in.open(f"/calls/{call.call_id}")
        yield call, signed_in, page
    await call.stored()


async def both_sides_are_played(call: AgentCall, page: Page) -> None:
    """Wait until the page has played sound of the caller and of the agent."""
    for _ in range(100):
        if min(await page.evaluate("window.peaks")) > 0.05:
            return
        await call.phone.hears(5)
    raise AssertionError(await page.evaluate("window.peaks"))


async def test_a_person_listens_in_and_no_microphone_is_opened(local_server: LocalServer) -> None:
    async with live_call(local_server) as (call, signed_in, page):
        await page.get_by_role("button", name="Listen in").click()
        await expect(page.get_by_text("Nobody hears you")).to_be_visible()
        call.phone.say(tone(8000, 440, 3))
        await both_sides_are_played(call, page)
        await signed_in.assert_accessible(page)
        await page.get_by_role("button", name="Stop listening").click()
        await expect(page.get_by_role("button", name="Listen in")).to_be_visible()
        await page.get_by_role("button", name="Listen in").click()
        await expect(page.get_by_text("Nobody hears you")).to_be_visible()
        await call.phone.hang_up()
        await expect(page.get_by_role("region", name=LIVE)).to_have_count(0)
        assert await page.evaluate("window.microphones") == 0


ENDS = [
    (1008, listening.TOO_SLOW, "this device or its connection is too slow"),
    (1008, access_watch.ENDED, "your role does not permit it any more"),
    (1001, "", "the connection to the server was lost"),
    (1000, listening.ENDED, "The call has ended."),
]
"""The code and the reason with which the server closes, and what the page says."""


async def test_the_page_says_why_listening_has_ended(local_server: LocalServer) -> None:
    ends = iter(ENDS)

    async def close_after_the_first_frame(socket: WebSocketRoute) -> None:
        server, heard = socket.connect_to_server(), asyncio.Event()
        server.on_message(lambda _: heard.set())
        await heard.wait()
        code, reason, _ = next(ends)
        await socket.close(code=code, reason=reason)

    async with live_call(local_server) as (call, signed_in, page):
        await signed_in.context.route_web_socket("**/listen*", close_after_the_first_frame)
        for _, _, said in ENDS:
            await page.get_by_role("button", name="Listen in").click()
            await expect(page.get_by_role("status").get_by_text(said)).to_be_visible()
        await call.phone.hang_up()


async def test_a_note_reaches_the_agent(local_server: LocalServer) -> None:
    note = "<img src=x onerror=alert(1)> Offer half the price"
    async with live_call(local_server) as (call, _, page):
        whisper = page.get_by_role("button", name="Whisper", exact=True)
        await expect(whisper).to_be_disabled()
        await page.get_by_label("Whisper to the agent").fill(note)
        await whisper.click()
        await expect(page.get_by_text("The agent has your note.")).to_be_visible()
        await expect(page.get_by_label("Whisper to the agent")).to_have_value("")
        await local_server.log.event("call.whispered", call_id=call.call_id)
        await call.phone.hang_up()
        await expect(page.get_by_role("region", name=LIVE)).to_have_count(0)
    timeline = await local_server.client.v1("GET", f"calls/{call.call_id}/timeline")
    assert [each["content"] for each in timeline["notes"]] == [note]


async def test_a_viewer_is_told_which_role_is_needed(local_server: LocalServer) -> None:
    async with live_call(local_server, "viewer") as (call, _, page):
        await expect(page.get_by_text("need the role editor")).to_be_visible()
        await expect(page.get_by_role("button", name="Listen in")).to_have_count(0)
        await call.phone.hang_up()


@pytest.fixture(scope="module")
def microphone(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Flags of a browser that may use its microphone, which plays speech again and again."""
    path = tmp_path_factory.mktemp("microphone") / "speech.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(speech("good morning this is the manager speaking", 16000).astype("<i2").tobytes())
    fake = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    return [*fake, f"--use-file-for-fake-audio-capture={Path(path)}"]


async def take_over(page: Page) -> None:
    await page.get_by_role("button", name="Take over").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading", name="Take over the call with raw?")).to_be_visible()
    await dialog.get_by_role("button", name="Take over").click()


async def test_a_person_takes_the_call_over_and_hangs_up(local_server: LocalServer, microphone: list[str]) -> None:
    async with live_call(local_server, flags=microphone, watch=RECORD_OUTPUT) as (call, signed_in, page):
        await take_over(page)
        await expect(page.get_by_text("You talk with raw.")).to_be_visible()
        await expect(page.get_by_role("button", name="Listen in")).to_have_count(0)
        await local_server.log.event("call.taken_over", call_id=call.call_id)
        await call.phone.hears(50)
        assert audible(await call.phone.hears(150), 8000).mean() > 0.2, "the person is heard"
        assert not audible(await heard_in(page), RATE).any(), "the caller was silent"
        await page.get_by_role("button", name="Mute").click()
        await expect(page.get_by_role("button", name="Unmute")).to_have_attribute("aria-pressed", "true")
        call.phone.say(tone(8000, 440, 1))
        await call.phone.hears(50)
        assert not audible(await call.phone.hears(100), 8000).any(), "a muted person is not heard"
        assert audible(await heard_in(page), RATE).sum() > 25, "the page plays the caller"
        await page.get_by_role("button", name="Unmute").click()
        await call.phone.hears(25)
        assert audible(await call.phone.hears(150), 8000).mean() > 0.2, "the person is heard again"
        await signed_in.assert_accessible(page)
        await page.get_by_role("button", name="Hang up").click()
        await call.phone.hung_up()
        await expect(page.get_by_role("region", name=LIVE)).to_have_count(0)
        assert await page.evaluate("tracks.map((each) => each.readyState)") == ["ended"]
    assert (await call.stored())["endedReason"] == "agent_ended"


async def test_levels_keys_and_the_choice_of_the_microphone_of_a_taken_over_call(
    local_server: LocalServer, microphone: list[str]
) -> None:
    async with live_call(local_server, flags=microphone, watch=KEEP_TRACKS) as (call, signed_in, page):
        await take_over(page)
        await expect(page.get_by_text("You talk with raw.")).to_be_visible()
        for side in ("You", "Customer"):
            call.phone.say(tone(8000, 440, 2))
            await page.wait_for_function(LEVEL, arg=side)
        await page.get_by_text("Keys", exact=True).click()
        await page.get_by_role("button", name="Key 5").click()
        await call.phone.hears(50)
        assert call.phone.digits() == "5"
        await page.locator("summary", has_text="Microphone").click()
        await page.get_by_label("Microphone").select_option(index=1)
        await page.wait_for_function("() => tracks.map((each) => each.readyState).join() === 'ended,live'")
        await signed_in.assert_accessible(page)
        assert audible(await call.phone.hears(150), 8000).any(), "the person is heard"
        await page.get_by_role("button", name="Hang up").click()
        await call.phone.hung_up()
        await page.wait_for_function("() => tracks.every((each) => each.readyState === 'ended')")


async def test_a_reload_of_the_page_ends_a_call_that_was_taken_over(
    local_server: LocalServer, microphone: list[str]
) -> None:
    async with live_call(local_server, flags=microphone, watch=KEEP_TRACKS) as (call, _, page):
        await take_over(page)
        await expect(page.get_by_text("You talk with raw.")).to_be_visible()
        asked: list[str] = []

        async def accept(dialog: Dialog) -> None:
            asked.append(dialog.type)
            await dialog.accept()

        page.on("dialog", accept)
        await page.reload()
        await call.phone.hung_up()
        assert asked == ["beforeunload"]


async def test_leaving_a_taken_over_call_asks_first(local_server: LocalServer, microphone: list[str]) -> None:
    async with live_call(local_server, flags=microphone, watch=KEEP_TRACKS) as (call, _, page):
        await page.get_by_role("link", name="All calls").click()
        await page.locator(f"a[href='/calls/{call.call_id}']").click()
        asked: list[str] = []
        answers = [False, False, False, True]

        async def answer(dialog: Dialog) -> None:
            asked.append(dialog.message)
            await (dialog.accept() if answers.pop(0) else dialog.dismiss())

        page.on("dialog", answer)
        await take_over(page)
        await expect(page.get_by_text("You talk with raw.")).to_be_visible()
        await page.get_by_role("tab", name="Turns").click()
        await page.get_by_role("link", name="All calls").click()
        await page.evaluate("history.go(-2)")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_text("You talk with raw.")).to_be_visible()
        assert audible(await call.phone.hears(150), 8000).any(), "the person is still heard"
        await page.get_by_role("link", name="All calls").click()
        await call.phone.hung_up()
        assert len(asked) == 4
        assert all("The call ends" in each for each in asked)
        assert await page.evaluate("tracks.map((each) => each.readyState)") == ["ended"]


async def test_a_taken_over_call_goes_on_when_the_page_cannot_be_refreshed(
    local_server: LocalServer, microphone: list[str]
) -> None:
    async with live_call(local_server, flags=microphone, watch=KEEP_TRACKS) as (call, signed_in, page):
        await expect(page.get_by_role("button", name="Take over")).to_be_visible()

        async def fail(route: Route) -> None:
            await route.fulfill(status=503, json={"error": "The disk is full"})

        await signed_in.context.route(f"**/v1/calls/{call.call_id}", fail)
        await take_over(page)  # it is an event of the call
        await expect(page.get_by_text("This could not be refreshed")).to_be_visible()
        await expect(page.get_by_text("You talk with raw.")).to_be_visible()
        await signed_in.assert_accessible(page)
        assert audible(await call.phone.hears(150), 8000).any(), "the person is heard"
        await signed_in.context.unroute(f"**/v1/calls/{call.call_id}")
        await page.get_by_role("button", name="Try again").click()
        await expect(page.get_by_text("This could not be refreshed")).to_have_count(0)
        await page.get_by_role("button", name="Hang up").click()
        await call.phone.hung_up()


async def test_a_browser_without_sound_says_why_nothing_was_taken_over(
    local_server: LocalServer, microphone: list[str]
) -> None:
    no_sound = "window.AudioContext = class { constructor() { throw new DOMException('', 'NotSupportedError'); } };"
    async with live_call(local_server, flags=microphone, watch=KEEP_TRACKS + no_sound) as (call, _, page):
        await take_over(page)
        await expect(page.get_by_role("alert").get_by_text("could not open its sound")).to_be_visible()
        assert await page.evaluate("tracks.map((each) => each.readyState)") == ["ended"]
        await call.phone.hang_up()
    assert not local_server.log.all("call.taken_over", call_id=call.call_id)


async def test_refused_connections_are_explained(local_server: LocalServer, microphone: list[str]) -> None:
    """As by a reverse proxy that does not pass WebSockets on."""

    async def refuse(socket: WebSocketRoute) -> None:
        await socket.close()

    async with live_call(local_server, flags=microphone, watch=KEEP_TRACKS) as (call, signed_in, page):
        await signed_in.context.route_web_socket("**/v1/calls/**", refuse)
        await page.get_by_role("button", name="Listen in").click()
        await expect(page.get_by_role("alert").get_by_text("must pass WebSockets on")).to_have_count(1)
        await take_over(page)
        await expect(page.get_by_role("alert").get_by_text("must pass WebSockets on")).to_have_count(2)
        await expect(page.get_by_role("button", name="Take over")).to_be_enabled()
        assert await page.evaluate("tracks.map((each) => each.readyState)") == ["ended"]
        assert not local_server.log.all("call.taken_over", call_id=call.call_id)
        await call.phone.hang_up()


async def test_without_a_microphone_the_agent_keeps_the_call(local_server: LocalServer) -> None:
    async with live_call(local_server, watch="") as (call, _, page):
        await page.get_by_role("button", name="Take over").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        await take_over(page)
        await expect(page.get_by_role("alert").get_by_text("microphone")).to_be_visible()
        assert audible(await call.phone.hears(50), 8000).any()
        await call.phone.hang_up()
    assert not local_server.log.all("call.taken_over", call_id=call.call_id)
    assert (await call.stored())["endedReason"] == "customer_ended"
