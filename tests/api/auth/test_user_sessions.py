"""Users of the dashboard over HTTP: sessions, their cookies, and what they may do in place of an API key."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp.test_utils import make_mocked_request

from api.auth.session_cookie import BROWSER_COOKIE, SESSION_COOKIE, session_token
from config.clock import utc_now
from storage import tables
from storage.accounts import audit_log, organizations
from storage.tables.columns import EPOCH
from storage.users import password_links, sessions, users
from storage.users.users import Role
from tests.api.conftest import Api, StartApi
from tests.web.stored_calls import store_call

PASSWORD = "correct horse battery"
AGENT = {"name": "Anna"}


@dataclass
class Browser:
    """A browser with its own cookies, which keeps the CSRF token of its session."""

    api: Api
    cookies: dict[str, str] = field(default_factory=dict)
    csrf_token: str = ""

    async def __call__(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Returns status and JSON body, None without one."""
        sent = {"Cookie": "; ".join(f"{name}={text}" for name, text in self.cookies.items())} if self.cookies else {}
        sent |= {"X-CSRF-Token": self.csrf_token} if self.csrf_token else {}
        more = {} if body is None else {"json": body}
        self.api.client.session.cookie_jar.clear()
        response = await self.api.client.request(method, path, headers={**sent, **(headers or {})}, **more)
        for name, morsel in response.cookies.items():
            assert morsel["httponly"] and morsel["samesite"] == "Strict" and morsel["path"] == "/"
            self.cookies[name] = morsel.value
        return response.status, await response.json() if response.content_type == "application/json" else None

    async def sign_in(self, name: str, password: str = PASSWORD) -> dict[str, Any]:
        """Signs in, which must succeed; returns what the server tells of the session."""
        status, answer = await self("POST", "/api/session", {"username": name, "password": password})
        assert status == 200, answer
        data: dict[str, Any] = answer["data"]
        self.csrf_token = data["csrfToken"]
        return data


async def new_user(api: Api, name: str, role: Role, organization_id: str | None = None) -> str:
    """Creates a user with `PASSWORD`, by default in the organization of `api`; returns its id."""
    owner = None if role == "operator" else organization_id or api.organization_id

    def create(conn: sa.Connection) -> tuple[str, str]:
        user = users.create(conn, name, role, owner)
        return user.id, password_links.create(conn, user.id, utc_now())

    user_id, token = await api.services.database.write(create)
    status, answer = await Browser(api)("POST", "/api/password", {"token": token, "password": PASSWORD})
    assert status == 204, answer
    return user_id


async def signed_in(api: Api, role: Role, organization_id: str | None = None) -> Browser:
    """Returns the browser of a new user, who is named like the role."""
    await new_user(api, role, role, organization_id)
    browser = Browser(api)
    await browser.sign_in(role)
    return browser


async def test_a_session_tells_who_is_signed_in_until_it_is_ended(api: Api) -> None:
    await new_user(api, "anna", "editor")
    browser = Browser(api)
    told = await browser.sign_in("Anna")
    organization = {"id": api.organization_id, "name": "default"}
    assert told == {
        "user": "anna",
        "role": "editor",
        "organization": organization,
        "organizations": None,
        "csrfToken": browser.csrf_token,
    }
    assert await browser("GET", "/api/session") == (200, {"data": told})
    assert (await browser("DELETE", "/api/session"))[0] == 204
    assert browser.cookies[SESSION_COOKIE] == ""
    assert (await browser("GET", "/api/session"))[0] == 401


async def test_an_ended_session_is_told_from_a_missing_key(api: Api) -> None:
    browser = await signed_in(api, "viewer")
    token = browser.cookies[SESSION_COOKIE]
    await browser("DELETE", "/api/session")
    browser.cookies[SESSION_COOKIE] = token
    status, answer = await browser("GET", "/v1/agents")
    assert (status, answer["error"]) == (401, "Not signed in")
    status, answer = await Browser(api)("GET", "/v1/agents")
    assert (status, answer["details"][0]["field"]) == (401, "Authorization")


async def test_signing_out_everywhere_ends_the_sessions_of_all_browsers(api: Api) -> None:
    await new_user(api, "anna", "viewer")
    first, second = Browser(api), Browser(api)
    await first.sign_in("anna")
    await second.sign_in("anna")
    assert (await first("DELETE", "/api/session?all=true"))[0] == 204
    assert (await second("GET", "/v1/agents"))[0] == 401


async def test_signing_in_again_ends_the_earlier_session_of_the_browser(api: Api) -> None:
    browser = await signed_in(api, "viewer")
    earlier = Browser(api, dict(browser.cookies), browser.csrf_token)
    await browser.sign_in("viewer")
    assert (await earlier("GET", "/v1/agents"))[0] == 401
    assert (await browser("GET", "/v1/agents"))[0] == 200


@pytest.mark.parametrize("name", ["nobody", "anna", "\x00", "\ud800"])
async def test_a_wrong_name_is_refused_as_a_wrong_password_is(api: Api, name: str) -> None:
    await new_user(api, "anna", "viewer")
    status, answer = await Browser(api)("POST", "/api/session", {"username": name, "password": "wrong password"})
    if name != "\ud800":  # which is no JSON
        assert (status, answer["error"]) == (401, "Sign-in failed")
    else:
        assert status in (400, 401)


async def test_attempts_are_limited(api: Api) -> None:
    await new_user(api, "anna", "viewer")
    wrong = {"username": "anna", "password": "wrong password"}
    statuses = [(await Browser(api)("POST", "/api/session", wrong))[0] for _ in range(11)]
    assert statuses == [401] * 10 + [429]


@pytest.mark.parametrize("text", ["é", "x" * 3000, '"', "", "=", "; ;"])
async def test_a_strange_cookie_is_no_session(api: Api, text: str) -> None:
    browser = Browser(api, {SESSION_COOKIE: text, BROWSER_COOKIE: text})
    assert (await browser("GET", "/v1/agents"))[0] == 401
    status, _ = await browser("POST", "/api/session", {"username": "anna", "password": "wrong password"})
    assert status == 401


async def test_each_role_may_do_what_its_rights_allow_and_is_told_the_role_that_it_needs(api: Api) -> None:
    viewer, editor, owner = (
        await signed_in(api, "viewer"),
        await signed_in(api, "editor"),
        await signed_in(api, "owner"),
    )
    assert (await viewer("GET", "/v1/agents"))[0] == 200
    assert (await viewer("HEAD", "/v1/agents"))[0] == 200
    status, answer = await viewer("POST", "/v1/agents", AGENT)
    assert (status, answer["error"]) == (403, "This needs the role editor")
    assert answer["details"] == [{"field": "role", "message": "Yours is viewer: this needs editor"}]
    status, answer = await editor("POST", "/v1/agents", AGENT)
    assert status == 201
    status, answer = await editor("POST", "/v1/webhook-endpoints", {})
    assert (status, answer["error"]) == (403, "This needs the role owner")
    assert (await owner("POST", "/v1/webhook-endpoints", {}))[0] == 400


async def test_of_users_only_operators_see_sip_messages_in_full_and_keys_do_too(api: Api) -> None:
    call = await store_call(api, None)
    operator, owner = await signed_in(api, "operator"), await signed_in(api, "owner")
    texts = [
        (await each("GET", f"/v1/calls/{call.id}/sip"))[1]["data"]["messages"][0]["text"] for each in (operator, owner)
    ]
    assert texts[0].startswith("INVITE ") and texts[1] is None
    _, with_key = await api("GET", f"/calls/{call.id}/sip")
    assert with_key["data"]["messages"][0]["text"] == texts[0]
    assert (await operator("GET", f"/v1/calls/{call.id}/sip?format=pcap"))[0] == 200
    assert (await api.raw("GET", f"/calls/{call.id}/sip?format=pcap")).status == 200
    assert await owner("GET", f"/v1/calls/{call.id}/sip?format=pcap") == (
        403,
        {"error": "This needs the role operator"},
    )


async def test_a_change_names_its_user_as_the_author(api: Api) -> None:
    editor = await signed_in(api, "editor")
    _, created = await editor("POST", "/v1/agents", AGENT)
    _, versions = await editor("GET", f"/v1/agents/{created['data']['id']}/versions")
    assert [each["author"] for each in versions["data"]] == ["editor"]


@pytest.mark.parametrize("token", [None, "", "0" * 64, "é"])
async def test_a_write_without_its_csrf_token_is_refused(api: Api, token: str | None) -> None:
    editor = await signed_in(api, "editor")
    editor.csrf_token = ""
    headers = {} if token is None else {"X-CSRF-Token": token}
    for method, path in (("POST", "/v1/agents"), ("DELETE", "/api/session")):
        status, answer = await editor(method, path, AGENT, headers)
        assert (status, answer["details"][0]["field"]) == (403, "X-CSRF-Token")
    assert (await editor("GET", "/api/session"))[0] == 200


async def test_the_csrf_token_of_another_session_is_refused(api: Api) -> None:
    editor, viewer = await signed_in(api, "editor"), await signed_in(api, "viewer")
    editor.csrf_token = viewer.csrf_token
    assert (await editor("POST", "/v1/agents", AGENT))[0] == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://[", "http://localhost:1"])
async def test_pages_of_other_origins_cannot_use_the_cookie(api: Api, origin: str) -> None:
    editor = await signed_in(api, "editor")
    headers = {"Origin": origin}
    for method, path, body in (
        ("GET", "/v1/agents", None),
        ("POST", "/v1/agents", AGENT),
        ("POST", "/api/session", {"username": "editor", "password": PASSWORD}),
        ("POST", "/api/password", {"token": "x", "password": PASSWORD}),
    ):
        status, answer = await editor(method, path, body, headers)
        assert (status, answer["details"][0]["field"]) == (403, "Origin"), path
    own = {"Origin": str(api.client.make_url("/")).rstrip("/")}
    assert (await editor("POST", "/v1/agents", AGENT, own))[0] == 201


async def test_a_page_of_the_public_origin_may_use_the_cookie(start_api: StartApi) -> None:
    api: Api = await start_api({"api": {"public_url": "https://voice.example.com"}})
    await new_user(api, "editor", "editor")
    browser = Browser(api)
    headers = {"Origin": "https://voice.example.com"}
    body = {"username": "editor", "password": PASSWORD}
    status, answer = await browser("POST", "/api/session", body, headers)
    assert status == 200
    assert set(browser.cookies) == {f"__Host-{SESSION_COOKIE}", f"__Host-{BROWSER_COOKIE}"}
    browser.csrf_token = answer["data"]["csrfToken"]
    assert (await browser("POST", "/v1/agents", AGENT, headers))[0] == 201


@pytest.mark.parametrize("signs_out", [False, True])
async def test_no_session_is_left_when_a_browser_was_signed_in_over_https_and_http(
    start_api: StartApi, signs_out: bool
) -> None:
    api: Api = await start_api({"api": {"public_url": "https://voice.example.com"}})
    await new_user(api, "anna", "editor")
    body, https = {"username": "anna", "password": PASSWORD}, {"Origin": "https://voice.example.com"}
    plain, browser = Browser(api), Browser(api)
    await plain.sign_in("anna")
    _, answer = await browser("POST", "/api/session", body, https)
    browser.csrf_token = answer["data"]["csrfToken"]
    earlier = [{SESSION_COOKIE: plain.cookies[SESSION_COOKIE]}, dict(browser.cookies)]
    browser.cookies |= plain.cookies
    if signs_out:
        assert (await browser("DELETE", "/api/session", None, https))[0] == 204
        left = ["", ""]
    else:
        assert (await browser("POST", "/api/session", body, https))[0] == 200
        left = [browser.cookies[f"__Host-{SESSION_COOKIE}"], ""]
        assert left[0] not in ("", earlier[1][f"__Host-{SESSION_COOKIE}"])
    assert [browser.cookies[f"__Host-{SESSION_COOKIE}"], browser.cookies[SESSION_COOKIE]] == left
    for cookies in earlier:
        assert (await Browser(api, cookies)("GET", "/v1/agents"))[0] == 401


@pytest.mark.parametrize(("over_tls", "token"), [(False, "http"), (True, None)])
def test_over_tls_a_cookie_of_http_does_not_count(over_tls: bool, token: str | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if over_tls else None
    request = make_mocked_request("GET", "/", {"Cookie": f"{SESSION_COOKIE}=http"}, sslcontext=context)
    assert session_token(request) == token


async def test_a_key_counts_before_a_cookie(api: Api) -> None:
    viewer = await signed_in(api, "viewer")
    viewer.csrf_token = ""
    assert (await viewer("POST", "/v1/agents", AGENT, {"Authorization": f"Bearer {api.key}"}))[0] == 201
    assert (await viewer("GET", "/v1/agents", None, {"Authorization": "Bearer tk_unknown"}))[0] == 401


async def test_an_operator_works_in_the_chosen_organization_and_else_in_the_first(api: Api) -> None:
    other = await api.as_another_organization()
    operator = await signed_in(api, "operator")
    _, told = await operator("GET", "/api/session")
    organization = {"id": api.organization_id, "name": "default"}
    assert told["data"]["organization"] == organization
    assert told["data"]["organizations"] == [organization, {"id": other.organization_id, "name": "other"}]
    chosen = {"X-Organization": other.organization_id.upper()}
    assert (await operator("POST", "/v1/agents", AGENT, chosen))[0] == 201
    _, told = await operator("GET", "/api/session", None, chosen)
    assert told["data"]["organization"]["name"] == "other"
    counts = [
        (await operator("GET", "/v1/agents", None, headers))[1]["pagination"]["total"] for headers in ({}, chosen)
    ]
    assert counts == [0, 1]
    by_parameter = await operator("GET", f"/v1/agents?limit=5&organization={other.organization_id}")
    assert (by_parameter[0], by_parameter[1]["pagination"]["total"]) == (200, 1)
    for unknown in ("é", "x", api.key, "00000000-0000-4000-8000-000000000000"):
        status, answer = await operator("GET", "/v1/agents", None, {"X-Organization": unknown})
        assert (status, answer["details"][0]["field"]) == (400, "X-Organization")


async def test_an_operator_without_any_organization_is_told_to_create_one(api: Api) -> None:
    operator = await signed_in(api, "operator")

    def delete_all(conn: sa.Connection) -> None:
        for each in organizations.all_of(conn):
            organizations.delete(conn, each)

    await api.services.database.write(delete_all)
    assert (await operator("GET", "/api/session"))[1]["data"]["organization"] is None
    status, answer = await operator("GET", "/v1/agents")
    assert (status, answer["error"].split(":")[0]) == (409, "There is no organization yet")


async def test_others_cannot_choose_an_organization(api: Api) -> None:
    other = await api.as_another_organization()
    owner = await signed_in(api, "owner")
    status, answer = await owner("GET", "/v1/agents", None, {"X-Organization": other.organization_id})
    assert (status, answer["error"]) == (403, "This needs the role operator")
    assert (await owner("GET", "/v1/agents", None, {"X-Organization": api.organization_id}))[0] == 200
    assert (await owner("GET", f"/v1/agents?organization={other.organization_id}"))[0] == 403
    assert (await api("GET", f"/agents?organization={api.organization_id}"))[0] == 400


async def test_everything_below_api_but_signing_in_needs_a_session_or_a_key(api: Api) -> None:
    assert (await Browser(api)("GET", "/api/unknown"))[0] == 401
    assert (await Browser(api)("GET", "/api/unknown", None, {"Authorization": f"Bearer {api.key}"}))[0] == 404
    assert (await (await signed_in(api, "viewer"))("GET", "/api/unknown"))[0] == 404


async def test_users_have_their_own_rate_limit(start_api: StartApi) -> None:
    api: Api = await start_api({"limits": {"requests_per_minute": 4}})
    viewer = await signed_in(api, "viewer")  # two requests of the address
    statuses = [(await viewer("GET", "/v1/agents"))[0] for _ in range(25)]
    assert statuses == [200] * 24 + [429]
    assert (await viewer("GET", "/v1/agents", None, {"Authorization": f"Bearer {api.key}"}))[0] == 200


async def test_a_link_that_sets_a_password_signs_in_and_ends_the_earlier_session_of_the_browser(api: Api) -> None:
    browser = await signed_in(api, "viewer")
    earlier = Browser(api, dict(browser.cookies))

    def invite(conn: sa.Connection) -> str:
        return password_links.create(conn, users.create(conn, "anna", "editor", api.organization_id).id, utc_now())

    token = await api.services.database.write(invite)
    assert await browser("POST", "/api/password", {"token": token, "password": PASSWORD}) == (204, None)
    assert (await browser("GET", "/api/session"))[1]["data"]["user"] == "anna"
    assert (await earlier("GET", "/api/session"))[0] == 401
    entries = await api.services.database.read(lambda conn: audit_log.entries_since(conn, api.organization_id, EPOCH))
    assert {"user.set-password", "user.sign-in"} <= {each.action for each in entries if each.actor == "anna"}


async def test_a_disabled_user_is_out_at_once(api: Api) -> None:
    user_id = await new_user(api, "anna", "viewer")
    browser = Browser(api)
    await browser.sign_in("anna")
    await api.services.database.write(lambda conn: users.disable(conn, user_id))
    assert (await browser("GET", "/v1/agents"))[0] == 401


async def test_ended_sessions_and_links_are_deleted_when_the_server_starts(start_api: StartApi) -> None:
    api: Api = await start_api()
    user_id = await new_user(api, "anna", "viewer")
    long_ago = utc_now() - timedelta(days=30)

    def age(conn: sa.Connection) -> None:
        sessions.end_all(conn, user_id)
        sessions.create(conn, user_id, long_ago)
        password_links.create(conn, user_id, long_ago)

    await api.services.database.write(age)
    await api.client.close()
    later: Api = await start_api(fresh=False)

    def left(conn: sa.Connection) -> int:
        return sum(
            conn.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in (tables.user_sessions, tables.password_links)
        )

    await later.services.database.write(lambda conn: None)  # the purge was queued before
    assert await later.services.database.read(left) == 0


async def test_a_page_creates_test_calls_below_api(api: Api) -> None:
    editor = await signed_in(api, "editor")
    agent_id = (await api.create("/agents", AGENT))["id"]
    status, answer = await editor("POST", "/api/calls/test", {"agentId": agent_id})
    assert (status, set(answer["data"])) == (201, {"call", "websocketUrl"})
    assert answer["data"]["call"]["provider"] == "web"
