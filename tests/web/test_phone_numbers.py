"""The pages of phone numbers: both kinds of trunk, tests, refused calls and the configuration of the PBX."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Route, expect

from calls.admission.refused_invites import RefusedInvite, RefusedInvites
from calls.live.events import LiveEvents
from calls.live.live_calls import LiveCalls
from calls.live.number_feed import NumberNews
from config.clock import utc_now
from sipcore.security.unknown_sources import UnknownSources
from sipcore.trunks.trunk import TrunkStatus
from storage.phone_numbers import phone_numbers
from tests.api.conftest import Api, StartApi
from tests.web.conftest import dashboard_of
from tests.web.dashboard import Dashboard

HOSTILE = "<img src=x onerror=alert(1)>"
BY_ADDRESS: dict[str, Any] = {"provider": "sip", "sipMode": "ip_allowlist", "sipIp": "192.0.2.10"}


async def test_a_number_is_created_changed_and_deleted(api: Api, signed_in: Dashboard) -> None:
    agent = await api.create("/agents", {"name": HOSTILE})
    page = await signed_in.open("/phone-numbers")
    await expect(page.get_by_text("No phone numbers yet.")).to_be_visible()
    await page.get_by_role("link", name="New number").click()
    await page.get_by_label("Number", exact=True).fill("700")
    await page.get_by_label("How the other side is known").select_option("ip_allowlist")
    await page.get_by_label("Address of the PBX").fill("no host")
    await page.get_by_label("Agent", exact=True).select_option(agent["id"])
    await signed_in.assert_accessible(page)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("Validation failed")
    await expect(page.get_by_label("Address of the PBX")).to_have_attribute("aria-invalid", "true")
    await page.get_by_label("Address of the PBX").fill("192.0.2.10")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="700")).to_be_visible()
    await expect(page.get_by_text("Listening")).to_be_visible()
    await page.get_by_label("Name").fill(HOSTILE)
    await page.get_by_label("Permitted destinations").fill("+49\n+43")
    page.once("dialog", lambda dialog: dialog.dismiss())
    await page.get_by_role("link", name="All numbers").click()
    await expect(page.get_by_label("Name")).to_have_value(HOSTILE)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    ((number,), _) = (await api("GET", "/phone-numbers"))[1].values()
    assert (number["outboundPrefixes"], number["sipIp"], number["agentId"]) == (
        ["+49", "+43"],
        "192.0.2.10",
        agent["id"],
    )
    await page.get_by_role("link", name="All numbers").click()
    await expect(page.get_by_role("cell", name=HOSTILE)).to_have_count(2)
    await page.get_by_role("link", name="700").click()
    await page.get_by_role("button", name="Delete: 700").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    await expect(page.get_by_text("No phone numbers yet.")).to_be_visible()


async def test_a_half_written_form_stays_when_the_number_cannot_be_loaded_again(api: Api, signed_in: Dashboard) -> None:
    number = await api.create("/phone-numbers", {"number": "700", **BY_ADDRESS})
    page = await signed_in.open(f"/phone-numbers?number={number['id']}")
    await page.get_by_label("Name").fill("Front desk")
    statuses = [503, 404]

    async def fail(route: Route) -> None:
        await route.fulfill(status=statuses.pop(0), json={"error": "No"})

    await page.route(f"**/v1/phone-numbers/{number['id']}", fail)
    await page.get_by_role("button", name="Check again").click()
    await expect(page.get_by_text("This could not be refreshed")).to_be_visible()
    await expect(page.get_by_label("Name")).to_have_value("Front desk")
    await page.get_by_role("button", name="Check again").click()
    await expect(page.get_by_text("This does not exist, or it was deleted.")).to_be_visible()
    await expect(page.get_by_label("Name")).to_have_count(0)


async def test_a_registration_is_stored_and_its_password_is_not_shown(api: Api, signed_in: Dashboard) -> None:
    page = await signed_in.open("/phone-numbers?number=new")
    await page.get_by_label("Number", exact=True).fill("+4940123456")
    await page.get_by_label("How the other side is known").select_option("registration")
    await page.get_by_label("Registrar").fill("pbx.example.com")
    await page.get_by_label("User", exact=True).fill("700")
    await page.get_by_label("Password").fill("hush-hush")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Not registered")).to_be_visible()
    await expect(page.get_by_label("Registrar")).to_have_value("pbx.example.com")
    await expect(page.get_by_label("Password")).to_have_value("")


async def test_the_tabs_of_a_number(start_api: StartApi) -> None:
    kept = RefusedInvites()
    api: Api = await start_api({"sip": {"public_address": "198.51.100.5"}}, refused_invites=kept.of)
    agent = await api.create("/agents", {"name": "Reception"})
    number = await api.create("/phone-numbers", {"number": "700", "agentId": agent["id"], **BY_ADDRESS})
    kept.add(api.organization_id, RefusedInvite(utc_now(), number["id"], "192.0.2.10", "700", HOSTILE, 486, "too many"))
    kept.add(api.organization_id, RefusedInvite(utc_now(), None, "192.0.2.10", "799", "5", 404, "unknown number"))
    async with dashboard_of(api, "owner", permissions=["clipboard-read", "clipboard-write"]) as browser:
        page = await browser.open("/phone-numbers")
        await expect(page.get_by_role("cell", name="unknown number")).to_be_visible()
        await browser.assert_accessible(page)
        await page.get_by_role("link", name="700").click()
        await page.get_by_role("tab", name="Refused calls").click()
        await expect(page.get_by_role("cell", name=HOSTILE)).to_be_visible()
        await expect(page.get_by_role("cell", name="unknown number")).to_have_count(0)
        await page.get_by_role("tab", name="Configuration of the PBX").click()
        await expect(page.get_by_text("match=198.51.100.5")).to_be_visible()
        await page.get_by_role("button", name="Copy the configuration").click()
        await expect(page.get_by_text("Copied.")).to_be_visible()
        assert "type=identify" in await page.evaluate("navigator.clipboard.readText()")
        await page.get_by_label("PBX", exact=True).select_option("fritzbox")
        await expect(page.get_by_text("has no trunk by address")).to_be_visible()
        await page.get_by_role("tab", name="Call me").click()
        await page.get_by_label("Your telephone number").fill("100")
        await page.get_by_role("button", name="Call me").click()
        await page.get_by_role("link", name="Open the call").click()
        await expect(page.get_by_role("heading", name="100")).to_be_visible()


async def test_an_operator_sees_from_which_addresses_calls_are_dropped(start_api: StartApi) -> None:
    unknown = UnknownSources()
    api: Api = await start_api(unknown_sources=unknown.latest)
    await api.create("/phone-numbers", {"number": "700", **BY_ADDRESS})
    async with dashboard_of(api, "operator") as browser:
        page = await browser.open("/phone-numbers")
        await expect(page.get_by_text("No SIP message came from an unknown address.")).to_be_visible()
        unknown.add("192.0.2.11", 12)
        await page.reload()
        row = page.get_by_role("region", name="Addresses that no number has").get_by_role("row").nth(1)
        await expect(row).to_contain_text("192.0.2.11")
        await expect(row).to_contain_text("12")
        await browser.assert_accessible(page)
    async with dashboard_of(api, "owner") as browser:
        page = await browser.open("/phone-numbers")
        await expect(page.get_by_role("link", name="700")).to_be_visible()
        await expect(page.get_by_text("Addresses that no number has")).to_have_count(0)


async def test_a_trunks_state_and_refused_calls_are_shown_as_they_happen(start_api: StartApi) -> None:
    kept, live, now = RefusedInvites(), LiveCalls(LiveEvents()), {"status": TrunkStatus("unregistered")}
    kept.on_added = live.on_refused
    api: Api = await start_api(events=live.events, refused_invites=kept.of, trunk_status=lambda _: now["status"])
    number = await api.create("/phone-numbers", {"number": "700", "provider": "sip"})
    stored = await api.services.database.read(lambda conn: phone_numbers.get(conn, api.organization_id, number["id"]))
    assert stored is not None

    def tell(status: TrunkStatus) -> None:
        now["status"] = status
        live.events.publish(api.organization_id, "number.updated", lambda: NumberNews(stored, status))

    def refuse(number_id: str | None, caller: str) -> None:
        invite = RefusedInvite(utc_now(), number_id, "192.0.2.10", "799", caller, 404, "unknown number")
        kept.add(api.organization_id, invite)

    async with dashboard_of(api, "owner") as browser:
        page = await browser.open("/phone-numbers")
        row = page.get_by_role("row").filter(has_text="700")
        await expect(row).to_contain_text("Not registered")
        await expect(page.get_by_text("No call was refused")).to_be_visible()
        tell(TrunkStatus("registered"))
        await expect(row).to_contain_text("Registered")
        refuse(number["id"], "1")
        refuse(None, HOSTILE)
        await expect(page.get_by_role("cell", name=HOSTILE)).to_be_visible()
        await expect(page.get_by_role("cell", name="799")).to_have_count(1)
        await page.get_by_role("link", name="700").click()
        await page.get_by_label("Name").fill("Not saved yet")
        tell(TrunkStatus("failed", "403 Forbidden"))
        await expect(page.get_by_text("403 Forbidden")).to_be_visible()
        await expect(page.get_by_label("Name")).to_have_value("Not saved yet")
        await page.get_by_role("tab", name="Refused calls").click()
        await expect(page.get_by_role("cell", name="799")).to_have_count(1)
        refuse(None, "2")
        refuse(number["id"], "3")
        await expect(page.get_by_role("cell", name="3", exact=True)).to_be_visible()
        await expect(page.get_by_role("cell", name="799")).to_have_count(2)


async def test_a_viewer_can_read_numbers_and_change_nothing(api: Api) -> None:
    await api.create("/phone-numbers", {"number": "700", **BY_ADDRESS})
    async with dashboard_of(api, "viewer", viewport={"width": 360, "height": 700}) as browser:
        page = await browser.open("/phone-numbers")
        await expect(page.get_by_text("Only an owner can create")).to_be_visible()
        await page.get_by_role("link", name="700").click()
        await expect(page.get_by_label("Address of the PBX")).to_be_disabled()
        await expect(page.get_by_role("button", name="Save")).to_be_disabled()
        await page.get_by_role("tab", name="Call me").click()
        await expect(page.get_by_text("Only an editor can place calls.")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
