"""What surrounds each page: navigation, colours, unknown addresses, a server that does not answer."""

from __future__ import annotations

import re
from base64 import b64encode

import sqlalchemy as sa
from playwright.async_api import expect

from storage.accounts import api_keys, organizations
from tests.api.conftest import Api
from tests.contract.tables.background_sounds import SOUND
from tests.web.conftest import address, dashboard_of
from tests.web.dashboard import Dashboard
from tests.web.stored_calls import store_call

LOADED = "each => new Promise((done) => { each.onloadedmetadata = () => done(); each.preload = 'auto'; each.load() })"


async def test_the_list_of_calls_is_accessible_and_says_that_it_is_empty(signed_in: Dashboard) -> None:
    page = await signed_in.open("/calls")
    await expect(page.get_by_text("No calls yet.")).to_be_visible()
    await expect(page).to_have_title("Calls · Trunkline")
    await signed_in.assert_accessible(page)


async def test_an_unknown_address_says_so(signed_in: Dashboard) -> None:
    page = await signed_in.open("/calls/00000000-0000-4000-8000-000000000000")
    await expect(page.get_by_role("alert")).to_contain_text("This does not exist")


async def test_an_operator_chooses_the_organization_of_a_tab(api: Api) -> None:
    def create(conn: sa.Connection) -> tuple[str, str]:
        other = organizations.create(conn, "Harbour office")
        return other.id, api_keys.create(conn, other.id)[1]

    other_id, key = await api.services.database.write(create)
    await api.create("/agents", {"name": "Reception"})
    other = {"Authorization": f"Bearer {key}"}
    content = {"fileSize": len(SOUND), "fileBase64": b64encode(SOUND).decode()}
    sound = {"name": "Waves", "filename": "waves.wav", "mimeType": "audio/wav", **content}
    for path, body in (("agents", {"name": "Pilot"}), ("background-sounds", sound)):
        async with api.client.post(f"/v1/{path}", json=body, headers=other) as response:
            assert response.status == 201
    async with dashboard_of(api, "operator") as operator:
        page = await operator.open("/agents")
        await expect(page.get_by_role("link", name="Reception")).to_be_visible()
        await page.get_by_role("combobox", name="Organization").select_option("Harbour office")
        await expect(page).to_have_url(f"{address(api)}/overview")
        await operator.assert_accessible(page)
        await page.get_by_role("link", name="Agents").click()
        await expect(page.get_by_role("link", name="Pilot")).to_be_visible()
        await expect(page.get_by_role("link", name="Reception")).to_have_count(0)
        await page.reload()
        await expect(page.get_by_role("link", name="Pilot")).to_be_visible()
        await page.get_by_role("link", name="Voices").click()
        await page.get_by_role("tab", name="Background sounds").click()
        await expect(page).to_have_url(f"{address(api)}/voices?tab=sounds")
        audio = page.get_by_label("Listen to Waves")
        await expect(audio).to_have_attribute("src", re.compile(f"organization={other_id}$"))
        await audio.evaluate(LOADED)
        another = await operator.open("/agents")
        await expect(another.get_by_role("link", name="Reception")).to_be_visible()


async def test_changes_that_are_not_saved_keep_the_organization(api: Api) -> None:
    await api.services.database.write(lambda conn: organizations.create(conn, "Harbour office"))
    agent = await api.create("/agents", {"name": "Reception"})
    async with dashboard_of(api, "operator") as operator:
        page = await operator.open(f"/agents/{agent['id']}")
        await page.get_by_label("Speed").fill("1.2")
        page.once("dialog", lambda dialog: dialog.dismiss())
        choice = page.get_by_role("combobox", name="Organization")
        before = await choice.input_value()
        await choice.select_option("Harbour office")
        await expect(choice).to_have_value(before)
        await expect(page.get_by_label("Speed")).to_have_value("1.2")


async def test_the_chosen_colours_stay(signed_in: Dashboard) -> None:
    page = await signed_in.open("/calls")
    await page.get_by_label("Colours").select_option("dark")
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_the_first_tab_stop_skips_the_navigation(signed_in: Dashboard) -> None:
    page = await signed_in.open("/calls")
    await expect(page.get_by_role("heading", name="Calls")).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.locator("#content")).to_be_focused()


async def test_a_new_page_has_the_focus_and_a_new_query_leaves_it(api: Api, signed_in: Dashboard) -> None:
    call = await store_call(api, None)
    page = await signed_in.open("/overview")
    await page.get_by_role("link", name="Calls", exact=True).click()
    await expect(page.locator("#content")).to_be_focused()
    status = page.get_by_role("combobox", name="Status")
    await status.focus()
    await status.select_option("completed")
    await expect(page).to_have_url(f"{address(api)}/calls?status=completed")
    await expect(page.get_by_role("row")).to_have_count(2)
    await expect(status).to_be_focused()
    await page.get_by_role("row").nth(1).get_by_role("link").click()
    await expect(page).to_have_url(f"{address(api)}/calls/{call.id}")
    await expect(page.locator("#content")).to_be_focused()


async def test_times_go_on_and_are_absolute_on_request(api: Api, signed_in: Dashboard) -> None:
    await store_call(api, None)
    page = await signed_in.context.new_page()
    await page.clock.install()
    await page.goto("/calls")
    begun = page.get_by_role("row").nth(1).get_by_role("time")
    await expect(begun).to_have_text("1 hour ago")
    await page.clock.run_for(3_600_000)
    await expect(begun).to_have_text("2 hours ago")
    await page.get_by_role("checkbox", name="Exact times").check()
    await expect(begun).to_have_text(re.compile(r"^\d+ \w+ \d{4}, \d\d:\d\d:\d\d$"))
    await page.goto("/calls")
    await expect(begun).to_have_text(re.compile(r"^\d+ \w+ \d{4}, \d\d:\d\d:\d\d$"))
    assert await page.evaluate("document.documentElement.lang") == "en-GB"


async def test_a_dialog_keeps_the_focus_closes_at_escape_and_gives_it_back(api: Api, signed_in: Dashboard) -> None:
    call = await store_call(api, None)
    page = await signed_in.open(f"/calls/{call.id}")
    await page.emulate_media(reduced_motion="reduce")
    delete, dialog = page.get_by_role("button", name="Delete"), page.get_by_role("dialog")
    await delete.focus()
    await page.keyboard.press("Enter")
    await expect(dialog).to_be_visible()
    for name in ("Cancel", "Delete"):
        button = dialog.get_by_role("button", name=name)
        await expect(button).to_be_focused()
        assert await button.evaluate("each => getComputedStyle(each).outlineStyle") != "none"
        await page.keyboard.press("Tab")
    assert await page.evaluate("document.getAnimations().length") == 0
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(delete).to_be_focused()


async def test_a_request_to_another_origin_and_a_blocked_script_would_be_detected(signed_in: Dashboard) -> None:
    page = await signed_in.open("/calls")
    await page.evaluate("""new Promise(resolve => {
      const image = new Image();
      image.onerror = resolve;
      image.src = "https://elsewhere.example/x.png";
    })""")
    blocked = [each for each in signed_in.problems if "elsewhere.example" in each]
    assert any("Content Security Policy" in each for each in blocked)
    signed_in.problems.clear()
