"""The overview: its figures lead to the calls behind them; without calls it leads to the first one."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from playwright.async_api import expect

from storage.calls import calls
from tests.api.conftest import Api
from tests.web.dashboard import Dashboard


async def _ended(api: Api, status: calls.EndStatus, reason: calls.EndedReason) -> None:
    def store(conn: sa.Connection) -> None:
        call = calls.create_inbound(
            conn, organization_id=api.organization_id, agent_id="a", phone_number_id="n", provider="sip",
            call_sid="x", customer_number="+4930123456",
        )  # fmt: skip
        calls.finish(
            conn, call.id, status=status, ended_reason=reason, answered_at=call.created_at,
            ended_at=call.created_at + timedelta(seconds=30), turn_count=1,
            timeline=[{"turn": 1, "response_gap_ms": 700, "interrupted": True}],
        )  # fmt: skip

    await api.services.database.write(store)


async def test_figures_lead_to_their_calls(api: Api, signed_in: Dashboard) -> None:
    await _ended(api, "completed", "agent_ended")
    await _ended(api, "failed", "busy")
    page = await signed_in.open("/overview?days=1")
    await expect(page.get_by_role("link", name="2 calls")).to_be_visible()
    await expect(page.locator("canvas")).to_be_visible()
    await signed_in.assert_accessible(page)
    await page.get_by_role("link", name="the line was busy: 1").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="Show all calls").click()
    await expect(page.locator("tbody tr")).to_have_count(2)


async def test_without_calls_it_leads_to_the_first_one(signed_in: Dashboard) -> None:
    page = await signed_in.open("/")
    await expect(page.get_by_role("heading", name="No calls in this time")).to_be_visible()
    await expect(page.get_by_role("link", name="Give it a telephone number.")).to_be_visible()
    await signed_in.assert_accessible(page)
