"""Signing in and out, and the one-time link, in a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from config.clock import utc_now
from storage.users import password_links, users
from tests.api.auth.test_user_sessions import PASSWORD, new_user
from tests.api.conftest import Api
from tests.web.conftest import address
from tests.web.dashboard import Dashboard, dashboard


@pytest.fixture
async def visitor(api: Api) -> AsyncIterator[Dashboard]:
    async with dashboard(address(api)) as opened:
        yield opened


async def test_the_link_sets_the_password_that_signs_in(api: Api, visitor: Dashboard) -> None:
    token = await _invite(api, "admin")
    page = await visitor.open(f"/welcome?token={token}")
    await visitor.assert_accessible(page)
    await page.get_by_label("New password", exact=True).fill(PASSWORD)
    await page.get_by_label("New password again").fill("something else")
    await page.get_by_role("button", name="Set password").click()
    await expect(page.get_by_role("alert")).to_have_text("The two passwords differ.")
    await page.get_by_label("New password again").fill(PASSWORD)
    await page.get_by_role("button", name="Set password").click()
    await expect(page.get_by_text("you are signed in as admin")).to_be_visible()
    await expect(page).to_have_url(f"{address(api)}/overview")
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_label("User").fill("admin")
    await page.get_by_label("Password").fill("wrong password")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_have_text("User or password is wrong.")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("navigation", name="Main")).to_be_visible()


@pytest.mark.parametrize(
    ("to", "opened"),
    [("/calls", "/calls"), ("//elsewhere.example", "/overview"), ("https://elsewhere.example", "/overview")],
)
async def test_a_link_leads_to_a_page_of_this_server_alone(api: Api, visitor: Dashboard, to: str, opened: str) -> None:
    token = await _invite(api, "admin")
    page = await visitor.open(f"/welcome?token={token}&to={quote(to)}")
    for label in ("New password", "New password again"):
        await page.get_by_label(label, exact=True).fill(PASSWORD)
    await page.get_by_role("button", name="Set password").click()
    await expect(page).to_have_url(address(api) + opened)


async def test_a_used_link_says_so(api: Api, visitor: Dashboard) -> None:
    page = await visitor.open("/welcome?token=unknown")
    for label in ("New password", "New password again"):
        await page.get_by_label(label, exact=True).fill(PASSWORD)
    await page.get_by_role("button", name="Set password").click()
    await expect(page.get_by_role("alert")).to_contain_text("ask for a new one")


async def test_the_address_that_was_asked_for_is_shown_after_signing_in(api: Api, visitor: Dashboard) -> None:
    await new_user(api, "anna", "owner")
    page = await visitor.open("/calls?status=failed")
    await visitor.assert_accessible(page)
    await _sign_in(page)
    await expect(page).to_have_url(f"{address(api)}/calls?status=failed")
    await expect(page.get_by_text("No call matches these filters.")).to_be_visible()


async def test_signing_out_leads_back(api: Api, visitor: Dashboard) -> None:
    await new_user(api, "anna", "owner")
    page = await visitor.open("/calls")
    await _sign_in(page)
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("button", name="Sign in")).to_be_visible()


async def _invite(api: Api, name: str) -> str:
    """Creates an operator; returns the token of the link that sets the password."""
    return await api.services.database.write(
        lambda conn: password_links.create(conn, users.create(conn, name, "operator", None).id, utc_now())
    )


async def _sign_in(page: Page) -> None:
    await page.get_by_label("User").fill("anna")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
