"""The page of settings: API keys, users, the organization's retention, and signing out everywhere."""

from __future__ import annotations

from playwright.async_api import expect

from tests.api.conftest import Api
from tests.api.resources.test_users import set_password
from tests.web.conftest import dashboard_of
from tests.web.dashboard import Dashboard

HOSTILE = "<img src=x onerror=alert(1)>"


async def test_a_key_is_shown_once_copied_and_revoked(api: Api) -> None:
    async with dashboard_of(api, "owner", permissions=["clipboard-read", "clipboard-write"]) as browser:
        page = await browser.open("/settings")
        await page.get_by_label("Name").fill(HOSTILE)
        await page.get_by_role("spinbutton", name="Requests a minute").fill("0")
        await page.get_by_role("button", name="Create key").click()
        await expect(page.get_by_role("spinbutton", name="Requests a minute")).to_have_attribute("aria-invalid", "true")
        await page.get_by_role("spinbutton", name="Requests a minute").fill("300")
        await page.get_by_role("button", name="Create key").click()
        await page.get_by_role("button", name="Copy key").click()
        await expect(page.get_by_text("Copied.")).to_be_visible()
        key = await page.evaluate("navigator.clipboard.readText()")
        await expect(page.locator("pre")).to_have_text(key)
        assert (await api("GET", "/agents", headers={"Authorization": f"Bearer {key}"}))[0] == 200
        row = page.get_by_role("row").filter(has_text=HOSTILE)
        await expect(row).to_contain_text("300")
        await browser.assert_accessible(page)
        await page.get_by_role("tab", name="Organization").click()
        await expect(page.get_by_role("row").filter(has_text="API keys")).to_have_text("API keys21000")
        await page.get_by_role("tab", name="API keys").click()
        await page.get_by_role("button", name="I have stored it").click()
        await expect(page.locator("main")).not_to_contain_text(key)

        await row.get_by_role("button", name=f"Revoke: {HOSTILE}").click()
        dialog = page.get_by_role("dialog", name=f"Revoke the key “{HOSTILE}”")
        await dialog.get_by_role("button", name="Cancel").click()
        assert (await api("GET", "/agents", headers={"Authorization": f"Bearer {key}"}))[0] == 200
        await row.get_by_role("button", name=f"Revoke: {HOSTILE}").click()
        await dialog.get_by_role("button", name="Revoke", exact=True).click()
        await expect(row).to_have_count(0)
        assert (await api("GET", "/agents", headers={"Authorization": f"Bearer {key}"}))[0] == 401


async def test_retention_is_saved_and_a_problem_stands_at_its_field(api: Api, signed_in: Dashboard) -> None:
    page = await signed_in.open("/settings")
    await page.get_by_role("tab", name="Organization").click()
    recordings = page.get_by_label("Days until recordings are deleted")
    await recordings.fill("99999")
    await page.get_by_role("tab", name="Session").click()
    await page.get_by_role("tab", name="Organization").click()
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("button", name="Shorten and delete").click()
    await expect(recordings).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_label("Days until calls are deleted")).to_have_attribute("aria-invalid", "false")

    await recordings.fill("30")
    await page.get_by_label("Redact card, account and identity numbers").check()
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("button", name="Cancel").click()
    assert (await api("GET", "/organization"))[1]["data"]["keepRecordingsDays"] is None
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("button", name="Shorten and delete").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()
    await signed_in.assert_accessible(page)
    stored = (await api("GET", "/organization"))[1]["data"]
    assert (stored["keepRecordingsDays"], stored["keepCallsDays"], stored["redact"]) == (30, None, True)

    await recordings.fill("")
    async with page.expect_response(lambda response: response.request.method == "PATCH"):
        await page.get_by_role("button", name="Save").click()
    assert (await api("GET", "/organization"))[1]["data"]["keepRecordingsDays"] is None


async def test_a_viewer_can_read_the_settings_and_change_nothing(api: Api) -> None:
    await api.create("/api-keys", {"name": "Web shop"})
    async with dashboard_of(api, "viewer", viewport={"width": 360, "height": 700}) as browser:
        page = await browser.open("/settings")
        await expect(page.get_by_role("row").filter(has_text="Web shop")).to_contain_text("Never")
        await expect(page.get_by_text("needs the role owner").first).to_be_visible()
        await expect(page.get_by_role("button", name="Revoke")).to_have_count(0)
        await expect(page.get_by_role("button", name="Create key")).to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        await page.get_by_role("tab", name="Organization").click()
        await expect(page.get_by_text("Free: calls cost nothing")).to_be_visible()
        await expect(page.get_by_label("Days until recordings are deleted")).to_be_disabled()
        await expect(page.get_by_role("button", name="Save")).to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360


async def test_signing_out_everywhere_ends_the_sessions_of_other_browsers(api: Api, signed_in: Dashboard) -> None:
    async with dashboard_of(api, "owner") as other:
        elsewhere = await other.open("/settings")
        await expect(elsewhere.get_by_role("heading", name="Settings")).to_be_visible()
        page = await signed_in.open("/settings")
        await page.get_by_role("tab", name="Session").click()
        await signed_in.assert_accessible(page)
        await page.get_by_role("button", name="Sign out on all devices").click()
        await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        await elsewhere.reload()
        await expect(elsewhere.get_by_role("button", name="Sign in")).to_be_visible()


async def test_users_are_created_changed_disabled_reset_and_deleted(api: Api) -> None:
    async with dashboard_of(api, "owner", "boss", permissions=["clipboard-read", "clipboard-write"]) as browser:
        page = await browser.open("/settings")
        await page.get_by_role("tab", name="Users").click()
        await expect(page.get_by_role("row").filter(has_text="boss")).to_contain_text("You")
        await expect(page.get_by_role("button", name="Delete: boss")).to_have_count(0)
        await page.get_by_label("User name").fill(HOSTILE)
        await page.get_by_role("button", name="Create user").click()
        await expect(page.get_by_label("User name")).to_have_attribute("aria-invalid", "true")
        await page.get_by_label("User name").fill("Anna")
        await page.get_by_label("Role").select_option("Editor")
        await page.get_by_role("button", name="Create user").click()
        await page.get_by_role("button", name="Copy link").click()
        await expect(page.get_by_text("Copied.")).to_be_visible()
        link = await page.evaluate("navigator.clipboard.readText()")
        await expect(page.locator("pre")).to_have_text(link)
        row = page.get_by_role("row").filter(has_text="anna")
        await expect(row).to_contain_text("EditorInvitedNever")
        await browser.assert_accessible(page)
        await page.get_by_role("button", name="I have stored it").click()
        await expect(page.locator("main")).not_to_contain_text("token=")
        assert await set_password(api, link) == 204

        await row.get_by_role("button", name="Change: anna").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("User name").fill("boss")
        await dialog.get_by_role("button", name="Save").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("There is a user boss already")
        await dialog.get_by_label("User name").fill("anna")
        await dialog.get_by_label("Role").select_option("Viewer")
        await browser.assert_accessible(page)
        await dialog.get_by_role("button", name="Save").click()
        await expect(row).to_contain_text("ViewerActive")

        await row.get_by_role("button", name="Disable: anna").click()
        await page.get_by_role("dialog", name="Disable “anna”?").get_by_role("button", name="Disable").click()
        await expect(row).to_contain_text("Disabled")
        await row.get_by_role("button", name="Enable: anna").click()
        await expect(row).to_contain_text("Active")
        await row.get_by_role("button", name="New link: anna").click()
        await page.get_by_role("dialog").get_by_role("button", name="New link").click()
        await expect(page.get_by_role("region", name="The link for “anna”")).to_be_focused()
        await expect(row).to_contain_text("Invited")
        await row.get_by_role("button", name="Delete: anna").click()
        dialog = page.get_by_role("dialog", name="Delete the user “anna”?")
        await dialog.get_by_role("button", name="Delete").click()
        await expect(row).to_have_count(0)
        await expect(page.locator("pre")).to_have_count(0)


async def test_a_refused_change_of_a_user_is_told_and_others_than_owners_see_no_users(api: Api) -> None:
    async with dashboard_of(api, "owner", "boss") as browser:
        page = await browser.open("/settings")
        await page.get_by_role("tab", name="Users").click()
        await page.get_by_role("button", name="Change: boss").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_label("Role")).to_be_disabled()
        await dialog.get_by_label("User name").fill("chief")
        await dialog.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("row").filter(has_text="chief")).to_contain_text("You")
    async with dashboard_of(api, "editor", viewport={"width": 360, "height": 700}) as browser:
        page = await browser.open("/settings")
        await page.get_by_role("tab", name="Users").click()
        await expect(page.get_by_text("Seeing and changing users needs the role owner.")).to_be_visible()
        await expect(page.get_by_role("button", name="Create user")).to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
