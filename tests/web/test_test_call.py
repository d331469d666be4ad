"""A test call from the page: a real browser with a file as its microphone, and a complete server."""

from __future__ import annotations

import asyncio
import json
import wave
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, WebSocketRoute, expect

from bench.turn.scripted_models import WORDS
from media.audio_port import Samples
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from tests.media.speech import speech
from tests.trunkline.recording_analysis import audible, heard_words, read_wav, share_heard
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.server_process import Receiver, until
from tests.web.conftest import cookie_of_server
from tests.web.dashboard import Dashboard, dashboard
from tests.web.page_audio import RATE, RECORD_OUTPUT, heard_in
from tests.web.stored_calls import HOSTILE

pytestmark = pytest.mark.asyncio(loop_scope="module")
FAKE_DEVICES: Final = ("--use-fake-device-for-media-stream",)
QUESTION: Final = "what are your opening hours"
ANSWER: Final = "Our office is open from nine to five on every weekday"


HOLD_MICROPHONES: Final = """
const opens = MediaDevices.prototype.getUserMedia;
window.held = [];
MediaDevices.prototype.getUserMedia = async function (...wanted) {
  const stream = await opens.apply(this, wanted);
  if (window.tracks.length > 1) await new Promise((resolve) => window.held.push(resolve));
  return stream;
};
"""
"""All microphones but the first one are given to the page when a test calls `held`."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server")) as local_server:
        yield local_server


@asynccontextmanager
async def caller(local_server: LocalServer, *, microphone: Path) -> AsyncIterator[Dashboard]:
    """A signed-in browser whose microphone plays a file once; pages may use it."""
    origin = local_server.server.api_origin
    devices = [
        *FAKE_DEVICES,
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone}%noloop",
    ]
    async with dashboard(origin, await cookie_of_server(local_server.server), flags=devices) as opened:
        await opened.context.add_init_script(RECORD_OUTPUT)
        yield opened


def as_file(path: Path, samples: Samples) -> Path:
    """Write a WAV file at 16 kHz."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return path


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Silence, the question and silence."""
    silence = np.zeros(RATE, np.int16)
    said = [silence, speech(QUESTION, RATE), *[silence] * 60]
    return as_file(tmp_path_factory.mktemp("microphone") / "question.wav", np.concatenate(said))


async def microphones_are_off(page: Page) -> bool:
    states = await page.evaluate("window.tracks.map((track) => track.readyState)")
    return bool(states) and set(states) == {"ended"}


async def call_of(page: Page) -> str:
    """The id of the call, from the link to its page."""
    href = await page.get_by_role("link", name="Open the call's page").get_attribute("href")
    assert href is not None
    return href.removeprefix("/calls/")


@pytest.fixture(scope="module")
def recognizer() -> Iterator[PocketsphinxSpeechToText]:
    """A recognizer for what both sides hear."""
    recognizer = PocketsphinxSpeechToText(threads=2, decoders=1)
    yield recognizer
    recognizer.close()


async def test_caller_and_agent_hear_each_other(
    local_server: LocalServer, question: Path, recognizer: PocketsphinxSpeechToText
) -> None:
    agent_id = await local_server.client.agent(name=HOSTILE, systemPrompt=f"{ANSWER}. END", firstSpeaker="user")
    async with caller(local_server, microphone=question) as browser:
        page = await browser.open(f"/agents/{agent_id}?tab=try")
        await expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
        await browser.assert_accessible(page)
        await page.get_by_role("button", name="Call", exact=True).click()
        conversation = page.get_by_role("log")
        await expect(page.get_by_role("status").get_by_text("Listening")).to_be_visible(timeout=15_000)
        await browser.assert_accessible(page)
        await expect(conversation.get_by_text(WORDS).first).to_be_visible(timeout=20_000)  # or twice, in two turns
        await expect(conversation.get_by_text(f"{ANSWER}.")).to_be_visible(timeout=20_000)
        await expect(page.get_by_text("The call has ended: the agent hung up.")).to_be_visible(timeout=20_000)
        await expect(page.get_by_role("listitem").filter(has_text="Turn 1")).to_contain_text("until the answer")
        assert await microphones_are_off(page)
        (wanted,) = await page.evaluate("window.wanted")
        assert wanted["echoCancellation"] is True and "deviceId" not in wanted
        for meter in ("You", "Agent"):
            least, most = await page.evaluate("(meter) => window.levels[meter]", meter)
            assert least < 0.2 and most > 0.4, meter
        heard = await heard_in(page)
        call_id = await call_of(page)
        await browser.assert_accessible(page)
        await page.get_by_role("button", name="Call again").click()
        await expect(conversation.get_by_text(f"{ANSWER}.")).to_have_count(0)
        await expect(conversation.get_by_text(f"{ANSWER}.")).to_be_visible(timeout=20_000)
        await expect(page.get_by_text("The call has ended: the agent hung up.")).to_be_visible(timeout=20_000)
        heard_again = (await heard_in(page))[len(heard) :]
        second_id = await call_of(page)
        await page.get_by_role("link", name="Open the call's page").click()
        await expect(page).to_have_url(f"{browser.address}/calls/{second_id}")
    assert second_id != call_id
    for played in (heard, heard_again):
        assert share_heard(ANSWER, " ".join(await heard_words(recognizer, played, RATE))) > 0.6
    await local_server.ended(call_id)
    rate, sides = read_wav(await local_server.client.recording(call_id))
    assert share_heard(QUESTION, " ".join(await heard_words(recognizer, sides[:, 0], rate))) > 0.5
    ended = await local_server.log.event("call.web_disconnected", call_id=call_id)
    assert 0 < ended["playback_delay_ms"] < 1000


async def test_a_reload_ends_the_call_and_frees_the_microphone(local_server: LocalServer, question: Path) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with caller(local_server, microphone=question) as browser:
        page = await browser.open(f"/agents/{agent_id}?tab=try")
        for leave in (page.reload, lambda: page.get_by_role("link", name="Calls").click(), page.close):
            since = local_server.log.mark()
            await page.get_by_role("button", name="Call", exact=True).click()
            await expect(page.get_by_role("status").get_by_text("Listening")).to_be_visible(timeout=15_000)
            call_id = await local_server.answered(since)
            await leave()
            found = await local_server.ended(call_id)
            assert (found["status"], found["endedReason"]) == ("completed", "customer_ended")
            if leave != page.reload and not page.is_closed():
                assert await microphones_are_off(page)
                await page.go_back()
    await until(lambda: not local_server.server.endpoint.pump.stats().calls)


async def test_keys_mute_options_and_hang_up(local_server: LocalServer, question: Path) -> None:
    client = local_server.client
    async with Receiver() as receiver, caller(local_server, microphone=question) as browser:
        await browser.context.grant_permissions(["microphone"])
        agent_id = await client.agent(systemPrompt="First.", firstSpeaker="agent", postCallWebhookUrl=receiver.url)
        await client.v1("PATCH", f"agents/{agent_id}", {"systemPrompt": "Second."})
        page = await browser.open(f"/agents/{agent_id}?tab=try")
        panel = page.get_by_role("region", name="Test call")
        await panel.get_by_text("Options").click()
        await page.get_by_label("Direction").select_option("The agent calls me")
        await panel.get_by_label("Version of the agent").select_option("1")
        await panel.get_by_label("Context variables").fill("name")
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_text("“name” is not of the form name = value.")).to_be_visible()
        await panel.get_by_label("Context variables").fill("name = Pat = P.\n\ncity=Rome")
        await page.get_by_label("Sounds like a telephone").check()
        await page.get_by_label("Send webhooks").check()
        await panel.get_by_label("Microphone").select_option("Fake Audio Input 1")
        since = local_server.log.mark()
        await page.get_by_role("button", name="Call", exact=True).click()
        call_id = await local_server.answered(since)
        await expect(page.get_by_role("log").get_by_text("First.")).to_be_visible(timeout=15_000)
        await page.get_by_role("button", name="Mute").click()
        assert not await page.evaluate("window.tracks[0].enabled")
        await panel.locator("summary", has_text="Microphone").click()
        await panel.get_by_label("Microphone").select_option("Fake Audio Input 2")
        await page.wait_for_function("() => window.tracks.length === 2 && window.tracks[0].readyState === 'ended'")
        tracks = await page.evaluate("window.tracks.map(({ label, enabled }) => [label, enabled])")
        assert tracks == [["Fake Audio Input 1", False], ["Fake Audio Input 2", False]], "the other one is muted, too"
        await page.get_by_text("Keys", exact=True).click()
        for key in "42#":
            await page.get_by_role("button", name=f"Key {key}").click()
        await expect(page.get_by_role("log").get_by_text("42")).to_be_visible(timeout=15_000)
        await page.get_by_role("button", name="Hang up").click()
        await expect(page.get_by_text("The call has ended: the customer hung up.")).to_be_visible()
        await expect(page.get_by_role("button", name="Call again")).to_be_visible()
        _, sent = await receiver.about(call_id)
        assert json.loads(sent)["test"] is True
    found = await local_server.ended(call_id)
    assert (found["direction"], found["agentVersion"]) == ("outbound", 1)
    assert found["contextVariables"] == {"name": "Pat = P.", "city": "Rome"}
    rate, _ = read_wav(await client.recording(call_id))
    assert rate == 8000


async def call_with_held_microphones(browser: Dashboard, agent_id: str) -> tuple[Page, Locator]:
    """Begin a test call. Returns its page and the choice of microphones, which `HOLD_MICROPHONES` holds back."""
    await browser.context.add_init_script(HOLD_MICROPHONES)
    page = await browser.open(f"/agents/{agent_id}?tab=try")
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.get_by_role("status").get_by_text("Listening")).to_be_visible(timeout=15_000)
    await page.locator("summary", has_text="Microphone").click()
    choice = page.get_by_label("Microphone")
    await expect(choice.get_by_role("option")).not_to_have_count(1)
    return page, choice


async def test_a_microphone_that_opens_after_the_call_is_closed_again(
    local_server: LocalServer, question: Path
) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with caller(local_server, microphone=question) as browser:
        page, choice = await call_with_held_microphones(browser, agent_id)
        await choice.select_option(index=1)
        await page.wait_for_function("() => window.held.length === 1")
        await page.get_by_role("button", name="Hang up").click()
        await expect(page.get_by_text("The call has ended: the customer hung up.")).to_be_visible()
        await page.evaluate("window.held[0]()")
        await page.wait_for_function("() => window.tracks.every((track) => track.readyState === 'ended')")
        assert await page.evaluate("window.tracks.length") == 2


async def test_of_two_chosen_microphones_the_last_one_is_used(local_server: LocalServer, question: Path) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with caller(local_server, microphone=question) as browser:
        page, choice = await call_with_held_microphones(browser, agent_id)
        for count in (1, 2):
            await choice.select_option(index=count)
            await page.wait_for_function("(count) => window.held.length === count", arg=count)
        await page.get_by_role("button", name="Mute").click()
        for index in (1, 0):
            await page.evaluate("(index) => window.held[index]()", index)
        await page.wait_for_function("() => window.tracks[0].readyState === 'ended'")
        await page.wait_for_function("() => window.tracks[1].readyState === 'ended'")
        assert await page.evaluate("[window.tracks[2].readyState, window.tracks[2].enabled]") == ["live", False]
        await page.get_by_role("button", name="Hang up").click()


async def test_a_browser_without_sound_keeps_no_microphone(local_server: LocalServer, question: Path) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with caller(local_server, microphone=question) as browser:
        await browser.context.add_init_script(
            "window.AudioContext = class { constructor() { throw new DOMException('', 'NotSupportedError'); } }"
        )
        page = await browser.open(f"/agents/{agent_id}?tab=try")
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("could not open its sound")
        assert await microphones_are_off(page)


async def test_an_interruption_silences_the_page(local_server: LocalServer, tmp_path: Path) -> None:
    words = np.concatenate([np.zeros(3 * RATE, np.int16), speech("excuse me please, I have a question for you", RATE)])
    microphone = as_file(tmp_path / "interruption.wav", np.pad(words, (0, 30 * RATE)))
    agent_id = await local_server.client.agent(
        systemPrompt=" ".join([ANSWER] * 5), firstSpeaker="agent", turnEndpointDelay=2000, ultravadEotThreshold=None
    )
    async with caller(local_server, microphone=microphone) as browser:
        page = await browser.open(f"/agents/{agent_id}?tab=try")
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_role("status").get_by_text("Speaking")).to_be_visible(timeout=15_000)
        await expect(page.get_by_role("status").get_by_text("Listening")).to_be_visible(timeout=15_000)
        before = len(await heard_in(page))
        await page.wait_for_function("(count) => window.heard.length > count", arg=await samples(page, 2))
        after = (await heard_in(page))[before:]
        assert not audible(after[RATE // 2 : 3 * RATE // 2], RATE).any(), "what was buffered is not played"


async def samples(page: Page, more_s: float) -> int:
    """The length of what the page will have played in `more_s`, in its own samples."""
    return int(await page.evaluate("(more_s) => window.heard.length + more_s * window.heardRate", more_s))


FAILURES: Final = {
    "denied": ("refuses this page the microphone", [*FAKE_DEVICES, "--use-fake-ui-for-media-stream=deny"]),
    "no HTTPS": ("no microphone without HTTPS", ["--host-resolver-rules=MAP office.example 127.0.0.1"]),
    "NotFoundError": ("No microphone was found", []),
    "NotReadableError": ("another program uses it", []),
}
"""What is wrong, or the browser's error; what the page says; and the browser's flags."""


@pytest.mark.parametrize("wrong", FAILURES)
async def test_a_missing_microphone_is_explained(local_server: LocalServer, wrong: str) -> None:
    said, flags = FAILURES[wrong]
    agent_id = await local_server.client.agent(systemPrompt="Yes.")
    address = local_server.server.api_origin
    if wrong == "no HTTPS":
        address = address.replace("127.0.0.1", "office.example")
    async with dashboard(address, await cookie_of_server(local_server.server), flags=flags) as browser:
        if wrong.endswith("Error"):
            await browser.context.add_init_script(
                f"MediaDevices.prototype.getUserMedia = async () => {{ throw new DOMException('', '{wrong}'); }}"
            )
        page = await browser.open(f"/agents/{agent_id}?tab=try")
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text(said)
        await expect(page.get_by_role("button", name="Call", exact=True)).to_be_visible()


async def test_a_server_that_goes_away_is_told_and_frees_the_microphone(
    local_server: LocalServer, question: Path
) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with caller(local_server, microphone=question) as browser:
        page = await browser.open(f"/agents/{agent_id}?tab=try")
        await browser.context.route_web_socket("**/socket*", lost_later)
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_text("The connection to the server was lost.")).to_be_visible(timeout=15_000)
        assert await microphones_are_off(page)


async def test_a_refused_connection_is_explained_and_ends_the_call(local_server: LocalServer, question: Path) -> None:
    """As by a reverse proxy that does not pass WebSockets on."""
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with caller(local_server, microphone=question) as browser:
        page = await browser.open(f"/agents/{agent_id}?tab=try")
        await browser.context.route_web_socket("**/socket*", refused)
        async with page.expect_response("**/v1/calls/test") as created:
            await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_role("alert").get_by_text("must pass WebSockets on")).to_be_visible()
        call_id = (await (await created.value).json())["data"]["call"]["id"]
        assert (await local_server.ended(call_id))["endedReason"] == "api_hangup"
        assert await microphones_are_off(page)
        await expect(page.get_by_text("The connection to the server was lost.")).to_have_count(0)
        await browser.assert_accessible(page)


async def refused(socket: WebSocketRoute) -> None:
    """Close a WebSocket before it is open."""
    await socket.close()


async def lost_later(socket: WebSocketRoute) -> None:
    """Let the connection through, and break it after a second of audio."""
    server, frames, enough = socket.connect_to_server(), 0, asyncio.Event()

    def to_page(message: str | bytes) -> None:
        nonlocal frames
        frames += isinstance(message, bytes)
        if frames < 50:
            socket.send(message)
        else:
            enough.set()

    server.on_message(to_page)
    await enough.wait()
    await socket.close(code=4000)


async def test_a_viewer_is_told_who_may_call_and_chat(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.")
    cookie = await cookie_of_server(local_server.server, "viewer")
    async with dashboard(local_server.server.api_origin, cookie) as viewer:
        page = await viewer.open(f"/agents/{agent_id}?tab=try")
        await expect(page.get_by_text("it needs an editor")).to_be_visible()
        await expect(page.get_by_text("they need an editor")).to_be_visible()
        for name in ("Call", "Start a chat"):
            await expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
