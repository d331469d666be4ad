"""Every screen with hostile texts in every place, on a telephone: no script runs, nothing is requested elsewhere, the
texts are shown as they are within their place, nothing is wider than the screen, and axe finds nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest
from playwright.async_api import Page, expect

from tests.api.conftest import StartApi
from tests.web.conftest import dashboard_of
from tests.web.dashboard import Dashboard
from tests.web.hostile_world import LONG, HostileWorld, hostile_world

TELEPHONE: Final = {"width": 360, "height": 740}
PROBLEMS: Final = """(long) => {
  const problems = [], shown = (element) => element.checkVisibility?.() ?? true;
  if (window.broken !== undefined) problems.push("a script ran");
  if (document.querySelector("img, #content script")) problems.push("a text became HTML");
  for (const link of document.querySelectorAll("[href]"))
    if (new URL(link.href).origin !== location.origin) problems.push(`a link to ${link.href}`);
  if (document.documentElement.scrollWidth > innerWidth) {
    const all = [...document.querySelectorAll("#content *")];
    const wide = all.filter((each) => each.getBoundingClientRect().right > innerWidth && !each.closest(".scroll"));
    problems.push(`wider than the screen: ${wide.slice(0, 5).map((each) => each.outerHTML.slice(0, 90))}`);
  }
  const texts = document.createTreeWalker(document.getElementById("content"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const parent = texts.currentNode.parentElement;
    if (!/[\u202a-\u202e]/.test(texts.currentNode.data) || !shown(parent)) continue;
    const alone = /isolate|plaintext/.test(getComputedStyle(parent).unicodeBidi) && parent.childNodes.length === 1;
    if (!alone) problems.push(`not isolated: ${parent.outerHTML.slice(0, 120)}`);
  }
  return problems;
}"""
"""What is wrong with the page as it is."""


@pytest.fixture
async def world(start_api: StartApi) -> HostileWorld:
    return await hostile_world(start_api)


@pytest.fixture
async def operator(world: HostileWorld) -> AsyncIterator[Dashboard]:
    async with dashboard_of(world.api, "operator", viewport=TELEPHONE) as opened:
        yield opened


async def check(browser: Dashboard, page: Page, where: str) -> None:
    """Asserts that nothing is wrong with the page as it is."""
    await expect(page.get_by_text("Loading…")).to_have_count(0)
    await page.evaluate("document.querySelectorAll('#content details').forEach((each) => (each.open = true))")
    assert await page.evaluate(PROBLEMS, LONG) == [], where
    await browser.assert_accessible(page)


@pytest.mark.timeout(240)
async def test_every_screen_shows_hostile_texts_as_text(world: HostileWorld, operator: Dashboard) -> None:
    shown: dict[str, tuple[str, ...]] = {
        "/overview": (),
        f"/live?call={world.live_id}": ("=live customer", "=live words", "=warning", "=failure"),
        "/calls": ("=customer", "=renamed agent"),
        f"/calls/{world.call_id}": ("=customer", "=phrase", "=user says"),
        f"/calls/{world.live_id}": ("=live customer",),
        "/agents": ("=renamed agent",),
        f"/agents/{world.agent_id}": ("=renamed agent",),
        "/phone-numbers": ("=number",),
        f"/phone-numbers?number={world.number_id}": ("=number", "=failure"),
        "/knowledge": ("=document 0", "=document error"),
        "/tools": ("=tool",),
        f"/tools?tool={world.tool_id}": ("=tool",),
        "/voices": (LONG,),
        "/models": ("=model",),
        "/models?tab=remote": ("=remote model", "=remote failure"),
        "/settings": ("=key",),
        "/settings?tab=audit": ("=actor", "=action", "=audited", "=field"),
    }
    for path, texts in shown.items():
        page = await operator.open(path)
        for text in texts:
            await expect(page.locator("#content").get_by_text(text).filter(visible=True).first).to_be_visible()
        await check(operator, page, path)
        if "tab=" not in path:
            for tab in (await page.get_by_role("tab").all())[1:]:
                await tab.click()
                await check(operator, page, f"{path} {await tab.inner_text()}")
        await page.close()
