"""The list of calls and the page of a call."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.api.conftest import Api
from tests.web.conftest import address, dashboard_of
from tests.web.dashboard import Dashboard
from tests.web.stored_calls import HOSTILE, store_call


async def open_call(api: Api, signed_in: Dashboard, query: str = "") -> Page:
    agent = await api.create("/agents", {"name": HOSTILE})
    call = await store_call(api, agent["id"])
    page = await signed_in.open(f"/calls/{call.id}{query}")
    await expect(page.get_by_role("heading", name="Call with +4940654321")).to_be_visible()
    return page


async def test_a_call_of_the_list_is_opened(api: Api, signed_in: Dashboard) -> None:
    call = await store_call(api, None)
    page = await signed_in.open("/calls?status=completed")
    await page.get_by_role("row").nth(1).get_by_role("link").click()
    await expect(page).to_have_url(f"{address(api)}/calls/{call.id}")
    await expect(page.get_by_text("the caller hung up")).to_be_visible()


async def test_the_transcript_seeks_and_follows_the_recording(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await page.get_by_role("button", name="Play from 0:07").click()
    await expect(page.locator("[aria-current=true].entry")).to_contain_text("Thank you")
    await expect(page.get_by_text("0:07 of 0:12")).to_be_visible()
    await page.get_by_role("button", name="Play", exact=True).click()
    await expect(page.locator("[aria-current=true].entry")).to_contain_text("Goodbye.", timeout=10_000)
    await page.get_by_role("button", name="Pause").click()


async def test_a_link_leads_to_a_moment(api: Api, signed_in: Dashboard) -> None:
    await signed_in.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = await open_call(api, signed_in, "?t=7.5")
    await expect(page.get_by_text("0:07 of 0:12")).to_be_visible()
    await page.get_by_role("slider").press("ArrowRight")
    await page.get_by_role("button", name="Copy a link to this moment").click()
    await expect(page.get_by_text("Copied.")).to_be_visible()
    assert (await page.evaluate("navigator.clipboard.readText()")).endswith("?t=12.0")


async def test_a_turn_shows_what_its_answer_waited_for(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await page.get_by_role("tab", name="Turns").click()
    first, second = page.get_by_role("tabpanel").locator(".turn").nth(0), page.locator(".turn").nth(1)
    await expect(first).to_contain_text("1000 ms until the answer · end of turn with a probability of 97 %")
    await expect(first.get_by_role("img", name="end of turn: 300 ms")).to_be_visible()
    await expect(second).to_contain_text("ended by turnEndpointDelay")
    await page.get_by_role("button", name="Interruption").click()
    await expect(page.get_by_text("0:05 of 0:12")).to_be_visible()


async def test_redacted_text_stands_out(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await expect(page.locator("mark")).to_have_text("[card]")


async def test_a_webhook_is_sent_again(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await page.get_by_role("tab", name="Webhooks").click()
    await page.get_by_role("button", name="Send again").click()
    await expect(page.get_by_text("Pending")).to_be_visible()
    assert len(api.webhook_wakes) == 1


async def test_a_call_is_deleted_after_a_question_that_names_it(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Delete the call with +4940654321 of ")
    await signed_in.assert_accessible(page)
    await dialog.get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("No calls yet.")).to_be_visible()


async def test_a_call_is_exported(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    async with page.expect_download() as started:
        await page.get_by_role("button", name="Export").click()
    download = await started.value
    assert download.suggested_filename == f"call-{page.url.rsplit('/', 1)[1]}.zip"


async def test_the_operator_downloads_the_sip_messages(api: Api) -> None:
    call = await store_call(api, None)
    async with dashboard_of(api, "operator") as operator:
        page = await operator.open(f"/calls/{call.id}")
        await page.get_by_role("tab", name="SIP").click()
        await page.get_by_text("INVITE sip:100@192.0.2.1", exact=True).click()
        await expect(page.get_by_text(HOSTILE)).to_be_visible()
        async with page.expect_download() as started:
            await page.get_by_role("button", name="Download as pcap").click()
        assert (await started.value).suggested_filename == f"call-{call.id}.pcap"


async def test_tabs_move_by_arrow_keys(api: Api, signed_in: Dashboard) -> None:
    page = await open_call(api, signed_in)
    await page.get_by_role("tab", name="Transcript").press("ArrowRight")
    await expect(page.get_by_role("tab", name="Turns")).to_be_focused()
    await page.keyboard.press("End")
    await expect(page.get_by_role("tab", name="Webhooks")).to_have_attribute("aria-selected", "true")


async def test_a_viewer_can_neither_delete_nor_export(api: Api) -> None:
    call = await store_call(api, None)
    async with dashboard_of(api, "viewer") as viewer:
        page = await viewer.open(f"/calls/{call.id}")
        await expect(page.get_by_role("tab", name="Webhooks")).to_be_visible()
        await expect(page.get_by_role("button", name="Delete")).to_have_count(0)
        await expect(page.get_by_role("button", name="Export")).to_have_count(0)
