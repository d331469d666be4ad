"""`/users`: an organization manages its users, and can lock out neither itself nor the user who asks."""

from __future__ import annotations

from typing import Any

import pytest

from storage.accounts import audit_log
from storage.tables.columns import EPOCH
from storage.users import users
from tests.api.auth.test_user_sessions import PASSWORD, Browser, new_user, signed_in
from tests.api.conftest import Api

ANNA = {"name": "anna", "role": "editor"}


async def set_password(api: Api, link: str) -> int:
    """Returns the status of setting `PASSWORD` by a link."""
    body = {"token": link.partition("/welcome?token=")[2], "password": PASSWORD}
    status, _ = await Browser(api)("POST", "/api/password", body)
    return status


async def can_sign_in(api: Api, name: str) -> bool:
    status, _ = await Browser(api)("POST", "/api/session", {"username": name, "password": PASSWORD})
    return status == 200


async def actions(api: Api) -> list[tuple[str, str, str | None, list[str]]]:
    """Actor, action, name of the user and changed fields in the audit log, of changes to users by others."""
    entries = await api.services.database.read(lambda conn: audit_log.entries_since(conn, api.organization_id, EPOCH))
    made = {"create", "update", "reset", "delete"}
    return [
        (each.actor, each.action, each.object_name, each.fields)
        for each in entries
        if each.object_type == "user" and each.action.removeprefix("user.") in made
    ]


async def test_a_new_user_signs_in_with_the_password_set_by_a_link_that_is_told_once(api: Api) -> None:
    made = await api.create("/users", ANNA)
    link = made.pop("link")
    assert link.startswith(str(api.client.make_url("/welcome?token=")))
    del made["linkExpiresAt"]
    assert made == {
        "id": made["id"],
        "name": "anna",
        "role": "editor",
        "state": "invited",
        "createdAt": made["createdAt"],
        "lastSignInAt": None,
    }
    assert await set_password(api, link) == 204
    assert await set_password(api, link) == 400
    assert await can_sign_in(api, "anna")
    for path in ("/users", f"/users/{made['id']}"):
        response = await api.raw("GET", path)
        text = await response.text()
        assert "token" not in text and "argon2" not in text
    _, answer = await api("GET", f"/users/{made['id']}")
    assert answer["data"]["state"] == "active" and answer["data"]["lastSignInAt"] is not None


async def test_a_name_is_taken_once_on_the_server_and_has_a_form(api: Api) -> None:
    await (await api.as_another_organization()).create("/users", ANNA)
    assert (await api("POST", "/users", ANNA))[0] == 409
    mine = await api.create("/users", {**ANNA, "name": "ann"})
    assert (await api("PATCH", f"/users/{mine['id']}", {"name": "anna"}))[0] == 409
    for name in ("", "Anna", "a b", "a" * 65, "-a", "ä", "anna\n"):
        status, answer = await api("POST", "/users", {**ANNA, "name": name})
        assert (status, answer["details"][0]["field"]) == (400, "name"), name


@pytest.mark.parametrize("role", ["operator", "admin", "", None])
async def test_nobody_gives_more_than_an_owners_rights(api: Api, role: str | None) -> None:
    made = await api.create("/users", ANNA)
    assert (await api("POST", "/users", {"name": "eve", "role": role}))[0] == 400
    assert (await api("PATCH", f"/users/{made['id']}", {"role": role}))[0] == 400


async def test_a_changed_role_holds_for_the_session_that_there_is(api: Api) -> None:
    user_id = await new_user(api, "anna", "viewer")
    browser = Browser(api)
    await browser.sign_in("anna")
    assert (await browser("POST", "/v1/agents", {"name": "A"}))[0] == 403
    status, answer = await api("PATCH", f"/users/{user_id}", {"role": "editor", "name": "ann"})
    assert (status, answer["data"]["role"], answer["data"]["name"]) == (200, "editor", "ann")
    assert (await browser("POST", "/v1/agents", {"name": "A"}))[0] == 201
    assert (await browser("GET", "/api/session"))[1]["data"]["user"] == "ann"
    await api("PATCH", f"/users/{user_id}", {"role": "viewer"})
    assert (await browser("POST", "/v1/agents", {"name": "A"}))[0] == 403


async def test_a_disabled_user_is_out_at_once_and_can_be_let_in_again(api: Api) -> None:
    user_id = await new_user(api, "anna", "viewer")
    browser = Browser(api)
    await browser.sign_in("anna")
    status, answer = await api("PATCH", f"/users/{user_id}", {"enabled": False})
    assert (status, answer["data"]["state"]) == (200, "disabled")
    assert (await browser("GET", "/v1/agents"))[0] == 401
    assert not await can_sign_in(api, "anna")
    assert (await api("PATCH", f"/users/{user_id}", {"enabled": True}))[1]["data"]["state"] == "active"
    assert (await browser("GET", "/v1/agents"))[0] == 401
    assert await can_sign_in(api, "anna")


async def test_a_reset_ends_password_and_sessions_and_gives_a_link(api: Api) -> None:
    user_id = await new_user(api, "anna", "viewer")
    browser = Browser(api)
    await browser.sign_in("anna")
    await api("PATCH", f"/users/{user_id}", {"enabled": False})
    status, first = await api("POST", f"/users/{user_id}/reset")
    assert (status, first["data"]["state"]) == (200, "invited")
    assert (await browser("GET", "/v1/agents"))[0] == 401
    assert not await can_sign_in(api, "anna")
    _, second = await api("POST", f"/users/{user_id}/reset")
    assert await set_password(api, first["data"]["link"]) == 400
    assert await set_password(api, second["data"]["link"]) == 204
    assert await can_sign_in(api, "anna")


async def test_a_deleted_user_is_out_at_once(api: Api) -> None:
    user_id = await new_user(api, "anna", "viewer")
    browser = Browser(api)
    await browser.sign_in("anna")
    assert await api("DELETE", f"/users/{user_id}") == (200, {"data": {"id": user_id, "deleted": True}})
    assert (await browser("GET", "/v1/agents"))[0] == 401
    assert (await api("GET", f"/users/{user_id}"))[0] == 404
    await api.create("/users", ANNA)


async def test_owners_cannot_lock_themselves_out(api: Api) -> None:
    owner = await signed_in(api, "owner")
    await new_user(api, "second", "owner")
    own_id = await user_id(api, "owner")
    for change in ({"role": "editor"}, {"enabled": False}):
        assert (await owner("PATCH", f"/v1/users/{own_id}", change))[0] == 409
    assert (await owner("DELETE", f"/v1/users/{own_id}"))[0] == 409
    assert (await owner("PATCH", f"/v1/users/{own_id}", {"role": "owner", "enabled": True}))[0] == 200
    status, answer = await owner("POST", f"/v1/users/{own_id}/reset")
    assert (status, answer["data"]["state"]) == (200, "active")
    assert (await owner("GET", "/v1/agents"))[0] == 200
    assert await set_password(api, answer["data"]["link"]) == 204
    assert (await owner("GET", "/v1/agents"))[0] == 401


async def test_a_key_cannot_take_the_only_owner_who_can_sign_in(api: Api) -> None:
    only = await new_user(api, "first", "owner")
    invited = await api.create("/users", {"name": "invited", "role": "owner"})
    for method, body in (("PATCH", {"role": "viewer"}), ("PATCH", {"enabled": False}), ("DELETE", None)):
        status, answer = await api(method, f"/users/{only}", body)
        assert (status, answer["error"].startswith("first is the only owner")) == (409, True)
    assert (await api("DELETE", f"/users/{invited['id']}"))[0] == 200
    await new_user(api, "second", "owner")
    assert (await api("PATCH", f"/users/{only}", {"role": "viewer"}))[0] == 200


async def test_an_operator_manages_the_users_of_the_chosen_organization(api: Api) -> None:
    other = await api.as_another_organization()
    operator = await signed_in(api, "operator")
    only = await new_user(api, "only", "owner", other.organization_id)
    chosen = {"X-Organization": other.organization_id}
    _, answer = await operator("GET", "/v1/users", None, chosen)
    assert [each["id"] for each in answer["data"]] == [only]
    assert (await operator("DELETE", f"/v1/users/{only}"))[0] == 404
    assert (await operator("DELETE", f"/v1/users/{only}", None, chosen))[0] == 200
    assert await actions(other) == [("operator", "user.delete", "only", [])]


async def test_operators_and_users_of_others_are_not_an_owners(api: Api) -> None:
    other = await api.as_another_organization()
    owner = await signed_in(api, "owner")
    strangers = [await new_user(api, "admin", "operator"), await new_user(api, "eve", "owner", other.organization_id)]
    _, answer = await owner("GET", "/v1/users")
    assert ([each["name"] for each in answer["data"]], answer["pagination"]["total"]) == (["owner"], 1)
    for stranger in strangers:
        for method, path, body in (
            ("GET", "", None),
            ("PATCH", "", {"role": "viewer"}),
            ("POST", "/reset", None),
            ("DELETE", "", None),
        ):
            status, answer = await owner(method, f"/v1/users/{stranger}{path}", body)
            assert (status, answer) == (404, {"error": "User not found"})


async def test_the_audit_log_has_each_change_and_no_link(api: Api) -> None:
    owner = await signed_in(api, "owner")
    _, made = await owner("POST", "/v1/users", ANNA)
    path = f"/v1/users/{made['data']['id']}"
    changes: list[Any] = [{"role": "viewer", "name": "ann"}, {"role": "viewer"}, {"enabled": False}, {"enabled": False}]
    for change in (*changes, {"enabled": True}, {}):
        assert (await owner("PATCH", path, change))[0] == 200
    await owner("POST", f"{path}/reset")
    await owner("DELETE", path)
    assert await actions(api) == [
        ("owner", "user.create", "anna", []),
        ("owner", "user.update", "ann", ["name", "role"]),
        ("owner", "user.update", "ann", []),
        ("owner", "user.update", "ann", ["enabled"]),
        ("owner", "user.update", "ann", ["enabled"]),
        ("owner", "user.update", "ann", ["enabled"]),
        ("owner", "user.update", "ann", []),
        ("owner", "user.reset", "ann", []),
        ("owner", "user.delete", "ann", []),
    ]


async def test_an_organization_has_a_bounded_number_of_users(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.resources.accounts.users.MAX_USERS", 1)
    await api.create("/users", ANNA)
    assert (await api("POST", "/users", {**ANNA, "name": "ann"}))[0] == 409


async def user_id(api: Api, name: str) -> str:
    found = await api.services.database.read(lambda conn: users.by_name(conn, name))
    assert found is not None
    return found.id
