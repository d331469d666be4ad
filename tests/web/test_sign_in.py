"""Signing in and out, and the one-time link, in a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa
from playwright.async_api import Dialog, Page, expect

from config.clock import utc_now
from storage import tables
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


async def test_a_refused_sign_in_says_what_to_do(visitor: Dashboard) -> None:
    page = await visitor.open("/calls")
    await expect(page.get_by_label("User")).to_be_visible()  # the page has asked for its session
    alert = page.get_by_role("alert")
    proxy = {"field": "Origin", "message": "Another host than this server's: set [api] public_url"}
    answers: list[dict[str, Any]] = [
        {"status": 401, "json": {"error": "Not signed in"}},
        {"status": 429, "json": {"error": "Too many attempts to sign in"}, "headers": {"Retry-After": "42"}},
        {"status": 403, "json": {"error": "Pages of other origins may not do this", "details": [proxy]}},
    ]
    await page.route("**/api/session", lambda route: route.fulfill(**answers.pop(0)))
    await page.reload()
    for told in ("Too many attempts. Try again in 42 s.", "set [api] public_url"):
        await _sign_in(page)
        await expect(alert).to_contain_text(told)


async def test_signing_out_leads_back_also_when_the_session_is_over_or_another_one(
    api: Api, visitor: Dashboard
) -> None:
    await new_user(api, "anna", "owner")
    page = await visitor.open("/calls")
    await _sign_in(page)
    sign_out = page.get_by_role("button", name="Sign out")
    await expect(sign_out).to_be_visible()
    await page.route("**/api/session", lambda route: route.abort())
    await sign_out.click()
    await expect(page.get_by_text("The server does not answer.")).to_be_visible()
    visitor.problems[:] = [each for each in visitor.problems if "net::ERR_FAILED" not in each]
    await page.unroute("**/api/session")
    await _sign_in_elsewhere(visitor, "anna")
    for end in (None, _end_sessions):
        if end is not None:
            await _sign_in(page)
            await expect(sign_out).to_be_visible()
            await end(api)
        await sign_out.click()
        await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("button", name="Sign in")).to_be_visible()


async def test_a_tab_goes_on_with_the_session_of_another_tab_unless_the_user_is_another_one(
    api: Api, visitor: Dashboard
) -> None:
    await new_user(api, "anna", "owner")
    await new_user(api, "bert", "owner")
    agent = await api.create("/agents", {"name": "Reception"})
    page, other = await visitor.open(f"/agents/{agent['id']}"), await visitor.open("/calls")
    await _sign_in(other)
    await expect(page.get_by_label("System prompt")).to_be_visible()  # the other tab has told it
    await _sign_in_elsewhere(visitor, "anna")
    await page.get_by_label("System prompt").fill("Be brief.")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved as version 2.")).to_be_visible()
    await _sign_in_elsewhere(visitor, "bert")
    await page.get_by_label("System prompt").fill("Be long.")
    page.once("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".user-name")).to_have_text("bert")
    await expect(page.get_by_label("System prompt")).to_have_value("Be brief.")


async def test_what_is_not_saved_outlasts_the_session_and_is_not_lost_without_a_question(
    api: Api, visitor: Dashboard
) -> None:
    await new_user(api, "anna", "owner")
    await new_user(api, "bert", "owner")
    agent = await api.create("/agents", {"name": "Reception"})
    page = await visitor.open(f"/agents/{agent['id']}")
    await _sign_in(page)
    prompt, dialog = page.get_by_label("System prompt"), page.get_by_role("dialog", name="Sign in again")
    await prompt.fill("Be brief.")
    asked: list[str] = []

    async def stay(question: Dialog) -> None:
        asked.append(question.message)
        await question.dismiss()

    page.on("dialog", stay)
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_role("button", name="Duplicate").click()
    await page.get_by_role("dialog").get_by_role("button", name="Duplicate").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert len(asked) == 2
    await expect(prompt).to_have_value("Be brief.")
    page.remove_listener("dialog", stay)

    await _end_sessions(api)
    await page.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_label("Password")).to_be_focused()
    await visitor.assert_accessible(page)
    for _ in range(3):
        await page.keyboard.press("Escape")
    await expect(dialog.get_by_label("User")).to_have_value("anna")
    await dialog.get_by_label("Password").fill(PASSWORD)
    await dialog.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_text("Saved as version 2.")).to_be_visible()
    await expect(dialog).to_have_count(0)
    assert (await api("GET", f"/agents/{agent['id']}"))[1]["data"]["systemPrompt"] == "Be brief."

    await _end_sessions(api)
    await prompt.fill("Be long.")
    await page.get_by_role("button", name="Save").click()
    await dialog.get_by_label("User").fill("bert")
    await dialog.get_by_label("Password").fill(PASSWORD)
    page.once("dialog", lambda question: question.accept())
    await dialog.get_by_role("button", name="Sign in").click()
    await expect(page.locator(".user-name")).to_have_text("bert")
    await expect(prompt).to_have_value("Be brief.")


async def _invite(api: Api, name: str) -> str:
    """Creates an operator; returns the token of the link that sets the password."""
    return await api.services.database.write(
        lambda conn: password_links.create(conn, users.create(conn, name, "operator", None).id, utc_now())
    )


async def _sign_in(page: Page) -> None:
    await page.get_by_label("User").fill("anna")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()


async def _sign_in_elsewhere(visitor: Dashboard, name: str) -> None:
    """Gives the browser another session, of which no page is told."""
    answer = await visitor.context.request.post("/api/session", data={"username": name, "password": PASSWORD})
    assert answer.ok


async def _end_sessions(api: Api) -> None:
    await api.services.database.write(lambda conn: conn.execute(sa.delete(tables.user_sessions)))
