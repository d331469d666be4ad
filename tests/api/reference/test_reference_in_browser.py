"""The reference page in a real browser: nothing blocked, nothing from elsewhere, readable on every screen."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.routes import description
from tests.api.conftest import Api
from tests.peers.chromium import PROGRAM, Outside, Tab, browser

pytestmark = pytest.mark.skipif(
    not Path(PROGRAM).exists(), reason="the system's archive has no chromium-headless-shell (Ubuntu has none)"
)
DOCUMENT = json.loads(description())
OPERATIONS = [each["operationId"] for methods in DOCUMENT["paths"].values() for each in methods.values()]
BRIGHTNESS = """(() => {
  const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
  return (r + g + b) / 765;
})()"""
SEEN = """[...document.querySelectorAll('article.operation')]
  .filter(each => each.checkVisibility() && each.getBoundingClientRect().height > 100).map(each => each.id)"""
TOO_WIDE = """[...document.querySelectorAll('body *')]
  .filter(each => !each.closest('pre') && !each.closest('thead') && !each.matches('.skip'))
  .filter(each => each.getBoundingClientRect().right > innerWidth + 1 || each.getBoundingClientRect().left < -1)
  .map(each => each.outerHTML.slice(0, 80))"""


@pytest.fixture
async def opened() -> AsyncIterator[tuple[Tab, Outside]]:
    async with browser() as found:
        yield found


def _address(api: Api, fragment: str = "") -> str:
    return str(api.client.make_url("/docs")) + fragment


async def test_every_operation_is_seen_and_nothing_is_blocked_or_fetched_from_elsewhere(
    api: Api, opened: tuple[Tab, Outside]
) -> None:
    tab, outside = opened
    await tab.open(_address(api))
    assert sorted(await tab.ask(SEEN)) == sorted(OPERATIONS)
    assert tab.complaints() == []
    assert tab.requested() == [_address(api)]
    assert outside.asked == []


async def test_a_page_with_something_from_elsewhere_would_be_noticed(opened: tuple[Tab, Outside]) -> None:
    tab, outside = opened
    page = "<!DOCTYPE html><title>x</title><img src='http://elsewhere.example/x.png'><script>nothing()</script>"

    async def blocking(_request: web.Request) -> web.Response:
        policy = {"Content-Security-Policy": "default-src 'none'; img-src *"}
        return web.Response(text=page, content_type="text/html", headers=policy)

    app = web.Application()
    app.router.add_get("/", blocking)
    async with TestServer(app) as server:
        await tab.open(str(server.make_url("/")))
        await outside.heard()
    assert outside.asked == ["GET http://elsewhere.example/x.png HTTP/1.1"]
    assert any("Content Security Policy" in each for each in tab.complaints())


async def test_nothing_sticks_out_of_the_window(api: Api, opened: tuple[Tab, Outside]) -> None:
    tab, _ = opened
    await tab.open(_address(api))
    for width in (320, 390, 768, 1024, 1280, 1920):
        await tab.size(width, 900)
        assert await tab.ask("innerWidth") == width
        assert await tab.ask(TOO_WIDE) == [], width
        assert await tab.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


async def test_the_page_follows_the_readers_wish_for_light_or_dark(api: Api, opened: tuple[Tab, Outside]) -> None:
    tab, _ = opened
    await tab.open(_address(api))
    await tab.prefer("light")
    assert await tab.ask(BRIGHTNESS) > 0.9
    await tab.prefer("dark")
    assert await tab.ask(BRIGHTNESS) < 0.2


async def _link(tab: Tab, anchor: str) -> Any:
    return await tab.ask(f"document.querySelector('nav a[href=\"#{anchor}\"]').checkVisibility()")


async def test_the_contents_are_beside_the_page_and_on_a_phone_folded_above_it(
    api: Api, opened: tuple[Tab, Outside]
) -> None:
    tab, _ = opened
    await tab.open(_address(api))
    await tab.size(1280, 900)
    assert await _link(tab, "createAgent")
    await tab.size(390, 844)
    assert not await _link(tab, "createAgent")
    await tab.ask("document.querySelector('nav summary').click()")
    assert await _link(tab, "createAgent")
    await tab.prefer("light", media="print")
    assert not await _link(tab, "createAgent")


async def test_an_address_leads_to_its_operation(api: Api, opened: tuple[Tab, Outside]) -> None:
    tab, _ = opened
    await tab.open(_address(api, "#updateAgent"))
    assert 0 <= await tab.ask("document.querySelector('#updateAgent h3').getBoundingClientRect().top") < 200
    await tab.ask("document.querySelector('nav a[href=\"#createAgent\"]').click()")
    assert 0 <= await tab.ask("document.querySelector('#createAgent h3').getBoundingClientRect().top") < 200


async def test_the_keyboard_reaches_the_content_first(api: Api, opened: tuple[Tab, Outside]) -> None:
    tab, _ = opened
    await tab.open(_address(api))
    for kind in ("keyDown", "keyUp"):
        await tab.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert await tab.ask("document.activeElement.getAttribute('href')") == "#reference"
    assert await tab.ask("document.activeElement.getBoundingClientRect().left") >= 0
