"""The overview: its figures lead to the calls behind them; without calls it leads to the first one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from playwright.async_api import expect

from storage.calls import calls
from tests.api.conftest import Api
from tests.web.dashboard import Dashboard, assert_painted_in_the_pages_colours


async def _ended(api: Api, status: calls.EndStatus, reason: calls.EndedReason, gap_ms: int | None = 700) -> str:
    """Stores a call that costs 2.50, of 30 s if it is completed; it is outbound if nobody answers. Returns its id."""

    def store(conn: sa.Connection) -> str:
        party: dict[str, Any] = {
            "organization_id": api.organization_id, "agent_id": "a", "phone_number_id": "n", "provider": "sip",
            "customer_number": "+4930123456",
        }  # fmt: skip
        if status == "no_answer":
            call = calls.create_outbound(conn, **party, context_variables={}, metadata={})
        else:
            call = calls.create_inbound(conn, **party, call_sid="x")
        turn = {"turn": 1, "response_gap_ms": gap_ms, "interrupted": gap_ms == 700}
        calls.finish(
            conn, call.id, status=status, ended_reason=reason, answered_at=call.created_at,
            ended_at=call.created_at + timedelta(seconds=30), turn_count=1, cost=2.5,
            timeline=[] if gap_ms is None else [turn],
        )  # fmt: skip
        return call.id

    return await api.services.database.write(store)


async def test_figures_lead_to_their_calls(api: Api, signed_in: Dashboard) -> None:
    await _ended(api, "completed", "agent_ended")
    await _ended(api, "failed", "busy")
    page = await signed_in.open("/overview?days=1")
    await expect(page.get_by_role("link", name="2 calls")).to_be_visible()
    await expect(page.locator("canvas")).to_be_visible()
    await assert_painted_in_the_pages_colours(page)
    await signed_in.assert_accessible(page)
    await page.get_by_role("link", name="the line was busy: 1").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.get_by_label("Until")).not_to_have_value("")
    await page.get_by_role("button", name="Remove the filter: Ended because: the line was busy").click()
    await expect(page.locator("tbody tr")).to_have_count(2)
    await expect(page.get_by_role("button", name="Remove the filter: Without test calls")).to_be_visible()
    await signed_in.assert_accessible(page)
    await page.get_by_label("Until").fill("2020-01-01T00:00:00")
    await expect(page.get_by_text("No call matches these filters.")).to_be_visible()
    await page.get_by_role("button", name="Show all calls").click()
    await expect(page.locator("tbody tr")).to_have_count(2)
    await expect(page.get_by_label("From")).to_have_value("")


FIGURES: Final = {
    "calls": ("3", "ABC"),
    "inbound": ("2", "AB"),
    "outbound": ("1", "C"),
    "failed": ("1", "B"),
    "without answer": ("1", "C"),
    "mean duration": ("0:10", "ABC"),
    "interruptions": ("1", "A"),
    "cost": ("7.50", "ABC"),
    "response gap, median": ("725 ms", "AB"),
    "response gap, 95th percentile": ("2090 ms", "B"),
}
"""What each figure is, and the calls behind it: A is interrupted, B is slow and fails, C is not answered. Percentiles
are interpolated in bins of 25 and 100 ms."""
LISTED: Final = """async links => {
  const ids = async query => (await (await fetch(`/v1/calls${query}`)).json()).data.map(call => call.id);
  return Object.fromEntries(await Promise.all(links.map(async link => [link, await ids(new URL(link).search)])));
}"""


async def test_each_figure_of_the_whole_time_and_of_a_day_leads_to_its_calls(api: Api, signed_in: Dashboard) -> None:
    stored = {
        await _ended(api, "completed", "agent_ended"): "A",
        await _ended(api, "failed", "busy", 2000): "B",
        await _ended(api, "no_answer", "no_answer", None): "C",
    }
    page = await signed_in.open("/overview")
    await expect(page.get_by_role("link", name="3 calls")).to_be_visible()
    names = [await each.inner_text() for each in await page.get_by_role("columnheader").all()]
    assert names == ["From", *FIGURES]
    cards = await page.locator(".figures a").evaluate_all("all => all.map(each => [each.innerText, each.href])")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="3", exact=True))
    cells = await row.get_by_role("link").evaluate_all("all => all.map(each => [each.innerText, each.href])")
    assert [text.split() for text, _ in cards] == [f"{value} {name}".split() for name, (value, _) in FIGURES.items()]
    assert [text for text, _ in cells] == [value for value, _ in FIGURES.values()]
    listed = await page.evaluate(LISTED, [link for _, link in [*cards, *cells]])
    for shown in (cards, cells):
        found = ["".join(sorted(stored[each] for each in listed[link])) for _, link in shown]
        assert found == [behind for _, behind in FIGURES.values()]


async def test_without_calls_it_leads_to_the_first_one(signed_in: Dashboard) -> None:
    page = await signed_in.open("/")
    await expect(page.get_by_role("heading", name="No calls in this time")).to_be_visible()
    await expect(page.get_by_role("link", name="Give it a telephone number.")).to_be_visible()
    await signed_in.assert_accessible(page)
