"""The page of knowledge: uploads, the state of documents, and what a question finds."""

from __future__ import annotations

import asyncio

import sqlalchemy as sa
from playwright.async_api import FilePayload, expect

from calls.knowledge.ingestion import DocumentIngester
from calls.live.document_feed import DocumentFeed
from storage.agents import agents
from storage.agents.agents import Agent
from storage.tables.agent_fields import AgentFields
from tests.api.conftest import Api
from tests.web.conftest import dashboard_of
from tests.web.dashboard import Dashboard

HOSTILE = "<img src=x onerror=alert(1)>"


async def _read_all(api: Api) -> None:
    """Read the uploaded documents."""
    feed = DocumentFeed(api.services.events)
    ingester = DocumentIngester(api.services.database, api.services.settings.data_dir, on_changed=feed.on_changed)
    await ingester.recover()
    running = asyncio.create_task(ingester.run())
    await ingester.wait_idle()
    running.cancel()
    await asyncio.wait((running,))


async def test_documents_are_uploaded_read_found_and_deleted(api: Api, signed_in: Dashboard) -> None:
    await api.create("/agents", {"name": HOSTILE, "knowledgeSearchInstructions": "For fees"})
    page = await signed_in.open("/knowledge")
    await expect(page.get_by_text("This agent has no documents yet.")).to_be_visible()
    text = f"A berth costs twenty euros. {HOSTILE}".encode()
    await page.get_by_label("Choose documents").set_input_files(
        [
            FilePayload(name=f"{HOSTILE}.txt", mimeType="text/plain", buffer=text),
            FilePayload(name="notes.xyz", mimeType="application/x-other", buffer=b"x"),
        ]
    )
    await expect(page.get_by_text("notes.xyz: ")).to_be_visible()
    await expect(page.get_by_text("Waiting")).to_be_visible()
    await _read_all(api)
    await expect(page.get_by_text("Ready")).to_be_visible()
    await page.get_by_label("Question").fill("What do the berths cost?")
    await page.get_by_role("button", name="Search").click()
    await expect(page.locator(".results")).to_contain_text(f"A berth costs twenty euros. {HOSTILE}")
    await expect(page.locator(".results")).to_contain_text("berths, cost")
    await signed_in.assert_accessible(page)
    await page.get_by_role("button", name=f"Delete: {HOSTILE}.txt").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    await expect(page.get_by_text("This agent has no documents yet.")).to_be_visible()


async def test_a_dropped_file_is_uploaded(api: Api, signed_in: Dashboard) -> None:
    await api.create("/agents", {"name": "Reception", "knowledgeSearchInstructions": "For fees"})
    page = await signed_in.open("/knowledge")
    await page.get_by_label("Drop documents here").dispatch_event(
        "drop",
        {
            "dataTransfer": await page.evaluate_handle("""() => {
              const transfer = new DataTransfer();
              transfer.items.add(new File(["A berth costs 20 euros."], "fees.txt", {type: "text/plain"}));
              return transfer;
            }""")
        },
    )
    await expect(page.get_by_role("cell", name="fees.txt", exact=True)).to_be_visible()


async def test_an_agent_beyond_the_first_hundred_is_known_everywhere(api: Api, signed_in: Dashboard) -> None:
    def create(conn: sa.Connection) -> list[Agent]:
        fields = [AgentFields(name=f"Agent {n}", knowledge_search_instructions="For fees") for n in range(101)]
        return [agents.create(conn, api.organization_id, each) for each in fields]

    created = await api.services.database.write(create)
    first_page = {each["id"] for each in (await api("GET", "/agents?limit=100"))[1]["data"]}
    (agent,) = [each for each in created if each.id not in first_page]
    page = await signed_in.open(f"/knowledge?agentId={agent.id}")
    await expect(page.get_by_label("Agent", exact=True)).to_have_value(agent.id)
    fees = FilePayload(name="fees.txt", mimeType="text/plain", buffer=b"A berth costs 20 euros.")
    await page.get_by_label("Choose documents").set_input_files([fees])
    await expect(page.get_by_role("cell", name="fees.txt", exact=True)).to_be_visible()
    (document,) = (await api("GET", f"/knowledge?agentId={agent.id}"))[1]["data"]
    assert document["name"] == "fees.txt"
    await api.create("/phone-numbers", {"number": "700", "provider": "sip", "agentId": agent.id})
    await page.goto(f"{signed_in.address}/phone-numbers")
    await expect(page.get_by_role("row").filter(has_text="700")).to_contain_text(agent.name)
    await page.goto(f"{signed_in.address}/calls")
    await page.locator(".filters select").first.select_option(agent.name)
    await expect(page).to_have_url(f"{signed_in.address}/calls?agentId={agent.id}")


async def test_the_knowledge_of_an_unknown_agent_is_not_that_of_another(api: Api, signed_in: Dashboard) -> None:
    agent = await api.create("/agents", {"name": "Reception", "knowledgeSearchInstructions": "For fees"})
    page = await signed_in.open(f"/knowledge?agentId={agent['id'][:-1]}x")
    await expect(page.get_by_text("This agent does not exist, or it was deleted.")).to_be_visible()
    await expect(page.get_by_label("Choose documents")).to_have_count(0)
    await signed_in.assert_accessible(page)
    await page.get_by_label("Agent", exact=True).select_option("Reception")
    await expect(page.get_by_label("Choose documents")).to_have_count(1)


async def test_a_viewer_uploads_nothing_and_a_page_without_agents_says_so(api: Api) -> None:
    async with dashboard_of(api, "viewer", viewport={"width": 360, "height": 700}) as browser:
        page = await browser.open("/knowledge")
        await expect(page.get_by_text("There are no agents yet.")).to_be_visible()
        await api.create("/agents", {"name": "Reception", "knowledgeSearchInstructions": "For fees"})
        await page.reload()
        await expect(page.get_by_text("Only an editor can add and delete documents.")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
