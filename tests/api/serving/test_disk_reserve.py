"""When only the reserve of the disk is free, the API stores nothing but what calls need."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from api.routes import ROUTES
from api.routing.openapi import openapi_document
from api.routing.route import Route
from storage.database.disk_space import DiskSpace
from tests.api.conftest import Api, StartApi
from tests.database_template import sqlite_only
from tests.trunkline.small_disk import filled, tiny_disk

REFUSED = {"error": "The server's disk is almost full: nothing more can be stored"}
WRITES = [each for each in ROUTES if each.method != "GET" and each.role != "operator"]
"""Of a key."""
FOR_CALLS = {
    *("createCall", "createTestCall", "createChat", "sendChatMessage", "whisperToAgent", "takeOverCall"),
    *("hangUpCall", "transferCall", "holdCall", "unholdCall"),
}
KEY = {"Idempotency-Key": "k"}


@pytest.fixture
async def api(start_api: StartApi, tmp_path: Path) -> AsyncIterator[Api]:
    """A server whose recordings have a separate disk: the database can be written while that one is full."""
    with tiny_disk(tmp_path / "recordings", "8m"):
        yield await start_api(disk=lambda database: DiskSpace(database, tmp_path, 512))


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    return tmp_path / "recordings"


async def _asked(api: Api, route: Route, **more: Any) -> tuple[int, Any]:
    body: dict[str, object] | None = None if route.method == "DELETE" else {}
    return await api(route.method, route.path.replace("{id}", str(uuid4())).replace("{n}", "1"), body, **more)


async def _call(api: Api) -> dict[str, Any]:
    """A body of POST /calls."""
    agent = await api.create("/agents", {"name": "a"})
    number = {"number": "100", "provider": "sip", "sipMode": "ip_allowlist", "sipIp": "192.0.2.10"}
    created = await api.create("/phone-numbers", number)
    return {"agentId": agent["id"], "phoneNumberId": created["id"], "to": "+41441234567"}


@pytest.mark.parametrize("route", WRITES, ids=lambda route: route.name)
async def test_at_the_disk_reserve_only_calls_and_deletions_work(api: Api, recordings: Path, route: Route) -> None:
    goes_on = route.name in FOR_CALLS or route.method == "DELETE" or route.read_only
    with filled(recordings):
        status, answer = await _asked(api, route)
    assert status in (400, 404) if goes_on else (status, answer) == (507, REFUSED)
    assert (await _asked(api, route))[0] in (200, 400, 404), "there is room again"


async def test_the_openapi_document_has_507_for_operations_that_store() -> None:
    paths = json.loads(openapi_document(ROUTES))["paths"]
    for route in ROUTES:
        may = route.method in ("POST", "PATCH") and route.name not in FOR_CALLS
        assert ("507" in paths[route.path][route.method.lower()]["responses"]) is may, route.name


async def test_resources_can_be_read_and_deleted_at_the_disk_reserve(api: Api, recordings: Path) -> None:
    agent = await api.create("/agents", {"name": "a"})
    with filled(recordings):
        assert await api("PATCH", f"/agents/{agent['id']}", {"name": "b"}) == (507, REFUSED)
        assert (await api("GET", f"/agents/{agent['id']}"))[1]["data"]["name"] == "a"
        assert (await api("DELETE", f"/agents/{agent['id']}"))[0] == 200


async def test_calls_are_placed_at_the_disk_reserve(api: Api, recordings: Path) -> None:
    call = await _call(api)
    with filled(recordings):
        assert (await api("POST", "/calls", call, headers=KEY))[0] == 201


async def test_a_507_is_not_stored_for_idempotency(api: Api, recordings: Path) -> None:
    with filled(recordings):
        assert await api("POST", "/agents", {"name": "a"}, headers=KEY) == (507, REFUSED)
    status, created = await api("POST", "/agents", {"name": "a"}, headers=KEY)
    assert status == 201
    with filled(recordings):
        assert await api("POST", "/agents", {"name": "a"}, headers=KEY) == (201, created), "an answer that is kept"


async def test_at_the_disk_reserve_a_search_with_an_idempotency_key_is_507(api: Api, recordings: Path) -> None:
    body = {"agentId": (await api.create("/agents", {"name": "a"}))["id"], "query": "berth"}
    with filled(recordings):
        assert (await api("POST", "/knowledge/search", body))[0] == 200
        assert await api("POST", "/knowledge/search", body, headers=KEY) == (507, REFUSED)


@sqlite_only("agents are not on the server's disk")
async def test_the_largest_agents_leave_the_disk_reserve_to_calls(start_api: StartApi, tmp_path: Path) -> None:
    targets = [
        {"mode": "cold", "name": f"t{n}", "number": f"+4930{n:06}", "description": "\u4e2d" * 1900} for n in range(64)
    ]
    largest = {"name": "big", "systemPrompt": "\u4e2d" * 32_000, "transferTargets": targets}
    with tiny_disk(tmp_path, "64m"):
        api = await start_api({"quotas": {"agents": 1000}}, disk=lambda database: DiskSpace(database, tmp_path, 512))
        call = await _call(api)
        created = [await api("POST", "/agents", largest) for _ in range(150)]
        assert created[0][0] == 201
        assert created[-1] == (507, REFUSED)
        assert (await api("POST", "/calls", call))[0] == 201
        left = await asyncio.to_thread(shutil.disk_usage, tmp_path)
        assert left.free > left.total // 20, "of a tenth, less what was on its way"
