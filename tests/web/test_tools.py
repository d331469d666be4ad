"""The page of tools: the editor and the trial."""

from __future__ import annotations

import json

from aiohttp import web
from playwright.async_api import expect

from tests.api.conftest import Api, StartApi
from tests.calls.http_server import LOOPBACK, client_with
from tests.calls.tools.tool_server import tool_server
from tests.web.conftest import dashboard_of

HOSTILE = "<img src=x onerror=alert(1)>"


async def test_a_tool_is_created_tried_and_deleted(start_api: StartApi) -> None:
    async with tool_server(web.Response(text=f"{HOSTILE} k-secret-1")) as server, client_with(LOOPBACK) as client:
        api: Api = await start_api({"egress": {"allow": ["127.0.0.0/8"]}}, http_client=client)
        async with dashboard_of(api, "owner") as browser:
            page = await browser.open("/tools")
            await expect(page.get_by_text("No tools yet.")).to_be_visible()
            await page.get_by_role("link", name="New tool").click()
            await page.get_by_label("Name").fill(HOSTILE)
            await page.get_by_label("Address").fill(f"{server.origin}/weather")
            await page.get_by_label("When to use it").fill("Tells the weather")
            await page.get_by_label("Headers").fill("Authorization: Bearer {{key}}")
            await page.get_by_role("button", name="Add a parameter").click()
            await page.get_by_label("Name of the parameter").fill("day")
            await page.get_by_label("Type").select_option("Whole number")
            await page.get_by_label("Required").check()
            await browser.assert_accessible(page)
            await page.get_by_role("button", name="Edit as JSON").click()
            parameters = json.loads(await page.get_by_label("Parameters as JSON").input_value())
            assert parameters == [{"name": "day", "type": "integer", "description": "", "required": True}]
            await page.get_by_label("Parameters as JSON").fill("[{]")
            await expect(page.get_by_role("button", name="Edit as a form")).to_be_disabled()
            await page.get_by_role("button", name="Save").click()
            await expect(page.get_by_text("This is no JSON list.")).to_be_visible()
            await page.get_by_label("Parameters as JSON").fill('[{"name": "city", "type": "string", "required": true}]')
            await page.get_by_role("button", name="Edit as a form").click()
            await expect(page.get_by_label("Name of the parameter")).to_have_value("city")
            await browser.assert_accessible(page)
            await page.get_by_role("button", name="Save").click()
            await expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
            await page.get_by_role("button", name="Send the request").click()
            await expect(page.get_by_text("was not called")).to_be_visible()
            await page.get_by_label("Arguments").fill('{"city": "Kiel"}')
            await page.get_by_label("Variables of the call").fill('{"key": "k-secret-1"}')
            await page.get_by_role("button", name="Send the request").click()
            await expect(page.get_by_text("Status 200")).to_be_visible()
            await expect(page.locator("pre")).to_contain_text(HOSTILE)
            await expect(page.locator("pre")).not_to_contain_text("k-secret-1")
            await browser.assert_accessible(page)
            await page.get_by_label("When to use it").fill("Changed")
            await expect(page.get_by_role("button", name="Send the request")).to_be_disabled()
            page.once("dialog", lambda dialog: dialog.accept())
            await page.get_by_role("link", name="All tools").click()
            await page.get_by_role("link", name=HOSTILE).click()
            await page.get_by_role("button", name=f"Delete: {HOSTILE}").click()
            await page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
            await expect(page.get_by_text("No tools yet.")).to_be_visible()
    assert [(method, path) for method, path, *_ in server.asked] == [("GET", "/weather?city=Kiel")]


async def test_a_viewer_can_read_a_tool_and_change_nothing(api: Api) -> None:
    config = {"url": "https://tools.example/weather", "method": "GET"}
    await api.create("/tools", {"name": "Weather", "type": "http", "config": config})
    async with dashboard_of(api, "viewer", viewport={"width": 360, "height": 700}) as browser:
        page = await browser.open("/tools")
        await page.get_by_role("link", name="Weather").click()
        await expect(page.get_by_label("Address")).to_be_disabled()
        await expect(page.get_by_role("button", name="Send the request")).to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
