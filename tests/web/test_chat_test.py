"""A chat with an agent from its page, on a complete server whose language model does what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from calls.chat import chat_session
from storage.accounts import organizations
from tests.trunkline.obedient_llm import ObedientLlm
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.web.conftest import cookie_of_server
from tests.web.dashboard import Dashboard, dashboard
from tests.web.stored_calls import HOSTILE

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server")) as local_server:
        yield local_server


@pytest.fixture
def llm(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> ObedientLlm:
    """The language model of all agents."""
    obedient = ObedientLlm()
    monkeypatch.setattr(local_server.language, "respond", obedient.respond)
    return obedient


@pytest_asyncio.fixture(loop_scope="module")
async def browser(local_server: LocalServer) -> AsyncIterator[Dashboard]:
    """A browser of an owner."""
    async with dashboard(local_server.server.api_origin, await cookie_of_server(local_server.server)) as opened:
        yield opened


async def write(page: Page, content: str) -> None:
    """Send a message by the keyboard, into the field that has the focus."""
    await expect(page.get_by_label("Message", exact=True)).to_be_focused()
    await page.keyboard.type(content)
    await page.keyboard.press("Enter")


@pytest.mark.usefixtures("llm")
async def test_a_chat_is_held_edited_and_looked_at(local_server: LocalServer, browser: Dashboard) -> None:
    agent_id = await local_server.client.agent(
        name=HOSTILE, firstSpeaker="agent", agentGreetingEnabled=True, agentGreeting="Good old day, {{name}}!"
    )
    await local_server.client.v1("PATCH", f"agents/{agent_id}", {"agentGreeting": "Good day, {{name}}!"})
    page = await browser.open(f"/agents/{agent_id}?tab=try")
    panel = page.get_by_role("region", name="Chat test")
    log = panel.get_by_role("log")
    await panel.get_by_text("Options").click()
    await panel.get_by_label("Context variables").fill(f"name = {HOSTILE}")
    await browser.assert_accessible(page)
    since = local_server.log.mark()
    await panel.get_by_label("Version of the agent").select_option("1")
    await panel.get_by_role("button", name="Start a chat").click()
    await expect(log.get_by_text("Good old day, <img src=x")).to_be_visible()
    await panel.get_by_role("button", name="End the chat").click()
    older = await local_server.ended((await local_server.log.event("chat.opened", since=since))["call_id"])
    assert older["agentVersion"] == 1
    await panel.get_by_text("Options").click()
    await panel.get_by_label("Version of the agent").select_option("2, the present one")
    await panel.get_by_label("Context variables").fill(f"name = {HOSTILE}")
    await panel.get_by_role("button", name="Start another chat").click()
    await expect(log.get_by_text("Good day, <img src=x")).to_be_visible()
    await write(page, HOSTILE)
    await expect(log.get_by_text(HOSTILE, exact=True)).to_be_visible()
    await expect(log.get_by_text("Message 1 is <img src=x")).to_be_visible()
    await expect(log.get_by_role("listitem").last).to_contain_text("ms until the answer · complete after")
    await write(page, 'call send_dtmf {"digits": "42"}')
    await log.locator("summary").click()
    await expect(log.get_by_text('{ "digits": "42" }')).to_be_visible()
    await expect(log.get_by_text("The keys were pressed.", exact=True)).to_be_visible()
    await panel.get_by_role("button", name="Edit message 1").click()
    await expect(log.get_by_label("Edit message 1")).to_be_focused()
    await browser.assert_accessible(page)
    await page.keyboard.press("Control+A")
    await page.keyboard.type("hello")
    await page.keyboard.press("Enter")
    await expect(log.get_by_text("Message 1 is hello.")).to_be_visible()
    await expect(log.get_by_text("send_dtmf")).to_have_count(0)
    await write(page, "on we go")
    await expect(log.get_by_text("Message 2 is on we go.")).to_be_visible()
    await panel.get_by_role("button", name="End the chat").click()
    await expect(panel.get_by_text("The chat has ended.")).to_be_visible()
    await expect(panel.get_by_role("button", name="Start another chat")).to_be_visible()

    await panel.get_by_role("link", name="Open the chat's page").click()
    await expect(page.get_by_role("heading", name="Chat test")).to_be_visible()
    await expect(page.get_by_text("it was ended in the dashboard or through the API")).to_be_visible()
    await expect(page.get_by_role("tab")).to_have_text(["Transcript", "Turns", "Summary"])
    await expect(page.get_by_role("tabpanel").get_by_role("listitem")).to_have_count(5)
    await page.get_by_role("tab", name="Turns").click()
    await expect(page.get_by_role("img", name="language model")).to_have_count(2)
    await browser.assert_accessible(page)
    await page.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", name="Delete the chat test of")).to_be_visible()
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("link", name="All calls").click()
    await expect(page.get_by_role("row").nth(1)).to_contain_text("WrittenChat test")
    assert await page.locator("img").count() == 0


async def test_a_draft_a_late_answer_and_the_end(
    local_server: LocalServer, browser: Dashboard, llm: ObedientLlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_id = await local_server.client.agent(
        firstSpeaker="agent", agentGreetingEnabled=True, agentGreeting="Saved.", allowEndCall=True
    )
    since = local_server.log.mark()
    page = await browser.open(f"/agents/{agent_id}")
    await page.get_by_label("Greeting", exact=True).fill("Not saved.")
    await page.get_by_role("tab", name="Try it").click()
    panel = page.get_by_role("region", name="Chat test")
    log = panel.get_by_role("log")
    await expect(panel.get_by_label("Version of the agent")).to_have_value("unsaved")
    await panel.get_by_role("button", name="Start a chat").click()
    await expect(log.get_by_text("Not saved.")).to_be_visible()
    with monkeypatch.context() as patched:
        patched.setattr(chat_session, "REPLY_S", 0.05)
        await write(page, "wait")
        await expect(panel.get_by_role("alert")).to_have_text("The agent has not answered yet")
    llm.may_answer.set()
    await page.get_by_role("tab", name="Settings").click()
    await page.get_by_role("tab", name="Try it").click()
    await expect(log.get_by_text("wait", exact=True)).to_be_visible()
    opened = await local_server.log.event("chat.opened", since=since)
    await stored_answer(local_server, opened["call_id"], "Message 1 is wait.")
    await panel.get_by_role("button", name="Look for the answer").click()
    await expect(log.get_by_text("Message 1 is wait.")).to_be_visible()
    await write(page, "bye")
    await expect(panel.get_by_text("The chat has ended: the agent hung up.")).to_be_visible()
    since = local_server.log.mark()
    await panel.get_by_role("button", name="Start another chat").click()
    await expect(log.get_by_text("Not saved.")).to_be_visible()
    opened = await local_server.log.event("chat.opened", since=since)
    page.on("dialog", lambda dialog: dialog.accept())  # there are unsaved changes
    await page.get_by_role("link", name="All agents").click()
    assert (await local_server.ended(opened["call_id"]))["endedReason"] == "api_hangup"


@pytest_asyncio.fixture(loop_scope="module")
async def redacting(local_server: LocalServer) -> AsyncIterator[None]:
    """Numbers of cards are redacted before they are stored."""
    database = local_server.server.database
    owner = await database.read(lambda conn: organizations.all_of(conn)[0])
    await database.write(lambda conn: organizations.change(conn, owner, {"redact": True}))
    yield
    await database.write(lambda conn: organizations.change(conn, owner, {"redact": False}))


@pytest.mark.usefixtures("redacting")
async def test_a_late_answer_to_a_redacted_message_is_found(
    local_server: LocalServer, browser: Dashboard, llm: ObedientLlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_id = await local_server.client.agent(firstSpeaker="user")
    since = local_server.log.mark()
    page = await browser.open(f"/agents/{agent_id}?tab=try")
    panel = page.get_by_role("region", name="Chat test")
    log = panel.get_by_role("log")
    await panel.get_by_role("button", name="Start a chat").click()
    monkeypatch.setattr(chat_session, "REPLY_S", 0)
    await write(page, "My card is 4111 1111 1111 1111, and you?")
    await expect(panel.get_by_role("alert")).to_have_text("The agent has not answered yet")
    opened = await local_server.log.event("chat.opened", since=since)
    answer = "Message 1 is My card is [card], and you?."
    await stored_answer(local_server, opened["call_id"], answer)
    await panel.get_by_role("button", name="Look for the answer").click()
    await expect(log.get_by_text(answer)).to_be_visible()
    await panel.get_by_role("button", name="Edit message 1").click()
    await log.get_by_label("Edit message 1").fill("wait")
    await page.keyboard.press("Enter")
    await panel.get_by_role("button", name="Look for the answer").click()
    await expect(panel.get_by_text("There is no answer yet.")).to_be_visible()
    await expect(log.get_by_text(answer)).to_have_count(0)
    llm.may_answer.set()
    await stored_answer(local_server, opened["call_id"], "Message 1 is wait.")
    await panel.get_by_role("button", name="Look for the answer").click()
    await expect(log.get_by_text("Message 1 is wait.")).to_be_visible()
    await panel.get_by_role("button", name="End the chat").click()
    await local_server.ended(opened["call_id"])


async def stored_answer(local_server: LocalServer, call_id: str, answer: str) -> None:
    """Wait until the server has stored the late answer."""
    async with asyncio.timeout(20):
        while answer not in await words_of(local_server, call_id):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def words_of(local_server: LocalServer, call_id: str) -> list[str]:
    """What the server has stored of a chat so far."""
    return [item["content"] for item in (await local_server.client.call(call_id))["transcript"]]
