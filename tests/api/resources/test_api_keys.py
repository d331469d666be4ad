"""`/api-keys`: a key is shown once, works, and works no more once it is revoked."""

from __future__ import annotations

from dataclasses import replace

from storage.accounts import audit_log
from storage.tables.columns import EPOCH
from tests.api.conftest import Api


async def test_a_new_key_works_and_is_shown_once(api: Api) -> None:
    made = await api.create("/api-keys", {"name": "Web shop", "requestsPerMinute": 300})
    assert made["key"].startswith(made["prefix"])
    status, _ = await replace(api, key=made["key"])("GET", "/agents")
    assert status == 200
    response = await api.raw("GET", "/api-keys")
    text = await response.text()
    listed = (await response.json())["data"]
    assert [each["name"] for each in listed] == ["Web shop", None]
    assert (listed[0]["id"], listed[0]["requestsPerMinute"]) == (made["id"], 300)
    assert made["key"].rpartition("_")[2] not in text and "sha256" not in text


async def test_a_revoked_key_stops_working_and_leaves_the_list(api: Api) -> None:
    made = await api.create("/api-keys", {"name": "Web shop"})
    assert await api("DELETE", f"/api-keys/{made['id']}") == (200, {"data": {"id": made["id"], "deleted": True}})
    status, _ = await replace(api, key=made["key"])("GET", "/agents")
    assert status == 401
    _, answer = await api("GET", "/api-keys")
    assert [each["name"] for each in answer["data"]] == [None]
    assert await api("DELETE", f"/api-keys/{made['id']}") == (404, {"error": "API key not found"})


async def test_keys_are_an_organizations_own(api: Api) -> None:
    other = await api.as_another_organization()
    made = await other.create("/api-keys", {"name": "Web shop"})
    _, answer = await api("GET", "/api-keys")
    assert made["id"] not in [each["id"] for each in answer["data"]]
    status, _ = await api("DELETE", f"/api-keys/{made['id']}")
    assert status == 404
    assert (await replace(other, key=made["key"])("GET", "/agents"))[0] == 200


async def test_the_audit_log_has_creation_and_revocation_without_the_key(api: Api) -> None:
    made = await api.create("/api-keys", {"name": "Web shop"})
    await api("DELETE", f"/api-keys/{made['id']}")
    entries = await api.services.database.read(lambda conn: audit_log.entries_since(conn, api.organization_id, EPOCH))
    expected = f"{made['prefix']} Web shop"
    assert [(each.action, each.object_name) for each in entries] == [("key.create", expected), ("key.revoke", expected)]


async def test_the_quota_of_keys_holds(api: Api) -> None:
    limit = api.services.settings.quotas.api_keys
    assert limit == 1000
    _, answer = await api("GET", "/organization")
    (quota,) = (each for each in answer["data"]["quotas"] if each["name"] == "api_keys")
    assert quota == {"name": "api_keys", "used": 1, "allowed": limit}
