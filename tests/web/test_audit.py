"""The audit log on the page of settings."""

from __future__ import annotations

from typing import Any, get_args

from playwright.async_api import expect

from api.schemas.audit import ObjectType
from storage.accounts import audit_log
from storage.accounts.audit_log import Actor, AuditObject
from tests.api.conftest import Api
from tests.web.conftest import dashboard_of
from tests.web.dashboard import Dashboard

HOSTILE = "<img src=x onerror=alert(1)>"


async def test_it_tells_who_changed_what_and_is_the_owners(api: Api, signed_in: Dashboard) -> None:
    agent = await api.create("/agents", {"name": HOSTILE})
    await api("PATCH", f"/agents/{agent['id']}", {"systemPrompt": "Be brief.", "voiceSpeed": 1.2})
    gone = await api.create("/agents", {"name": "Gone"})
    await api("DELETE", f"/agents/{gone['id']}")

    def record(conn: Any) -> None:
        for number in range(50):
            audit_log.record(
                conn,
                api.organization_id,
                actor=Actor("command", HOSTILE if number == 49 else "root"),
                action="<b>unheard.of</b>" if number == 49 else "organization.update",
                about=AuditObject("organization", api.organization_id, "default"),
                fields=[HOSTILE] if number == 49 else ["redact"],
            )

    await api.services.database.write(record)
    page = await signed_in.open("/settings")
    await page.get_by_role("tab", name="Audit").click()
    rows = page.get_by_role("row")
    await expect(rows).to_have_count(51)
    unheard = rows.filter(has_text="<b>unheard.of</b>")
    await expect(unheard).to_contain_text(f"{HOSTILE} (command line)")
    await expect(page.locator("main img")).to_have_count(0)
    await signed_in.assert_accessible(page)
    await page.get_by_role("button", name="Older entries").click()
    changed = rows.filter(has_text="Changed the agent")
    await expect(changed).to_contain_text("systemPrompt, voiceSpeed")
    await expect(changed).to_contain_text("(API key)")
    await expect(changed).to_contain_text("127.0.0.1")
    await expect(rows.filter(has_text="Deleted the agent").get_by_role("link")).to_have_count(0)
    kinds = await page.get_by_label("About").locator("option").evaluate_all("all => all.map(each => each.value)")
    assert sorted(kinds) == sorted(["", *get_args(ObjectType)])
    await page.get_by_label("About").select_option("Agent")
    await expect(rows).to_have_count(5)
    await page.get_by_label("Who").fill("nobody at all")
    await page.get_by_label("Who").press("Enter")
    await expect(page.get_by_text("No entry matches these filters.")).to_be_visible()
    await page.get_by_label("Who").fill("")
    await page.get_by_label("Who").press("Enter")
    await changed.get_by_role("link", name=HOSTILE).click()
    await expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()

    async with dashboard_of(api, "editor") as browser:
        refused = await browser.open("/settings")
        await refused.get_by_role("tab", name="Audit").click()
        await expect(refused.get_by_role("alert").filter(has_text="This needs the role owner")).to_be_visible()
