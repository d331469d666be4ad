"""What outlasts its request ends with the session or the key that it was opened with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from aiohttp import ClientResponse

from api.auth import access_watch
from api.auth.session_cookie import SESSION_COOKIE
from config.clock import utc_now
from storage.accounts import api_keys
from storage.users import password_links, sessions
from tests.api.auth.test_user_sessions import PASSWORD, Browser, new_user
from tests.api.conftest import Api

WAIT_S = 20
USER = "anna"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the rights more often than a server does."""
    monkeypatch.setattr(access_watch, "CHECK_EVERY_S", 0.02)


async def opened(api: Api, path: str, **headers: str) -> ClientResponse:
    """A stream whose first block has come."""
    api.client.session.cookie_jar.clear()
    response = await api.client.get(path, headers=headers)
    assert response.status == 200
    async with asyncio.timeout(WAIT_S):
        await response.content.readuntil(b"\n\n")
    return response


async def ended(stream: ClientResponse) -> None:
    async with asyncio.timeout(WAIT_S):
        await stream.content.read()


async def go_on(api: Api, *streams: ClientResponse) -> None:
    """The looks at the rights after a change leave them."""
    await api.create("/agents", {"name": "Anna"})
    await asyncio.sleep(0.1)  # several looks
    assert not any(each.content.at_eof() for each in streams)


async def sign_out(_api: Api, browser: Browser, _user: str) -> None:
    await browser("DELETE", "/api/session")


async def sign_out_everywhere(api: Api, _browser: Browser, _user: str) -> None:
    other = Browser(api)
    await other.sign_in(USER)
    await other("DELETE", "/api/session?all=true")


async def disable(api: Api, _browser: Browser, user: str) -> None:
    await api("PATCH", f"/users/{user}", {"enabled": False})


async def delete(api: Api, _browser: Browser, user: str) -> None:
    await api("DELETE", f"/users/{user}")


async def reset(api: Api, _browser: Browser, user: str) -> None:
    await api("POST", f"/users/{user}/reset")


async def set_password(api: Api, _browser: Browser, user: str) -> None:
    token = await api.services.database.write(lambda conn: password_links.create(conn, user, utc_now()))
    await Browser(api)("POST", "/api/password", {"token": token, "password": PASSWORD})


@pytest.mark.parametrize("end", [sign_out, sign_out_everywhere, disable, delete, reset, set_password])
async def test_a_stream_ends_with_its_session_alone(
    api: Api, end: Callable[[Api, Browser, str], Awaitable[None]]
) -> None:
    user = await new_user(api, USER, "viewer")
    await new_user(api, "other", "viewer")
    browser, other = Browser(api), Browser(api)
    await browser.sign_in(USER)
    await other.sign_in("other")
    stream, others, keys = [
        await opened(api, "/api/events", Cookie=f"{SESSION_COOKIE}={browser.cookies[SESSION_COOKIE]}"),
        await opened(api, "/api/events", Cookie=f"{SESSION_COOKIE}={other.cookies[SESSION_COOKIE]}"),
        await opened(api, "/v1/events", Authorization=f"Bearer {api.key}"),
    ]
    await go_on(api, stream)
    await end(api, browser, user)
    await ended(stream)
    await go_on(api, others, keys)


async def test_a_stream_ends_when_its_key_is_revoked(api: Api) -> None:
    made = await api.create("/api-keys", {"name": "wall"})
    stream = await opened(api, "/v1/events", Authorization=f"Bearer {made['key']}")
    await go_on(api, stream)
    await api.services.database.write(lambda conn: api_keys.revoke(conn, made["prefix"]))
    await ended(stream)


async def test_a_stream_ends_when_its_session_is_over(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_watch, "RECHECK_S", 0.0)
    idle = timedelta(seconds=api.services.settings.dashboard.session_idle_s)
    user = await new_user(api, USER, "viewer")
    token = await api.services.database.write(
        lambda conn: sessions.create(conn, user, utc_now() - idle + timedelta(seconds=2))
    )
    # its use by the request is not stored, as on a full disk
    monkeypatch.setattr(sessions, "set_last_used", lambda *_: None)
    await ended(await opened(api, "/api/events", Cookie=f"{SESSION_COOKIE}={token}"))


async def test_rights_end_with_the_role_that_is_needed(api: Api) -> None:
    user = await new_user(api, USER, "editor")
    browser = Browser(api)
    await browser.sign_in(USER)
    token = browser.cookies[SESSION_COOKIE]
    sha256 = sessions.token_hash(token)
    lifetime = sessions.SessionLifetime(timedelta(hours=1), timedelta(hours=1))

    async def role() -> str | None:
        found = await api.services.database.read(lambda conn: sessions.roles_of(conn, {sha256}, utc_now(), lifetime))
        return found.get(sha256)

    assert await role() == "editor"
    await api("PATCH", f"/users/{user}", {"role": "viewer"})
    assert await role() == "viewer"
    await api("PATCH", f"/users/{user}", {"enabled": False})
    assert await role() is None
