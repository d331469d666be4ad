"""Pages: as many items as fit; the others follow on the next page, and no others are read."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from api.schemas.bounds import MAX_DESCRIPTION, MAX_NAME
from api.serving import serialization
from config.settings_tables import QuotaSettings
from storage import tables
from storage.agents import tools
from storage.background_sounds import sounds
from storage.tables.row_mapping import BATCH_ROWS
from tests.api.conftest import Api

MIB = 1024 * 1024
LARGEST = [{"name": f"{n:255}", "description": "x" * 2000, "number": "12", "mode": "cold"} for n in range(64)]
HTTP = {"type": "http", "config": {"url": "https://x/", "method": "GET"}}


async def _copies(api: Api, table: sa.Table, count: int, **changes: Any) -> None:
    """Copies the organization's only row."""

    def copy(conn: sa.Connection) -> None:
        row = conn.execute(sa.select(table).where(table.c.organization_id == api.organization_id)).mappings().one()
        conn.execute(sa.update(table).values(**changes)) if changes else None
        conn.execute(sa.insert(table), [{**row, **changes, "id": f"{n:08}{row['id'][8:]}"} for n in range(count - 1)])

    await api.services.database.write(copy)


async def _pages(api: Api, path: str) -> list[list[str]]:
    """The ids of each page, read as the documentation says."""
    found: list[list[str]] = []
    offset, total = 0, 1
    while offset < total:
        async with api.client.get(
            f"/v1{path}?limit=100&offset={offset}", headers={"Authorization": f"Bearer {api.key}"}
        ) as response:
            body = await response.read()
        assert response.status == 200
        page = json.loads(body)
        assert len(body) <= 4 * MIB or len(page["data"]) == 1
        assert page["pagination"] == {"total": page["pagination"]["total"], "limit": 100, "offset": offset}
        total = page["pagination"]["total"]
        assert page["data"], "a page has one item at least"
        found.append([each["id"] for each in page["data"]])
        offset += len(page["data"])
    return found


async def test_large_agents_are_returned_in_several_pages(api: Api) -> None:
    await api.create("/agents", {"name": "Anna", "systemPrompt": "x" * 32000, "transferTargets": LARGEST})
    await _copies(api, tables.agents, 60)
    pages = await _pages(api, "/agents")
    assert len(pages) > 2
    assert len({each for page in pages for each in page}) == 60
    assert min(map(len, pages[:-1])) > 20, "as many as there is room for"
    assert await _pages(api, "/agents") == pages, "also of what is JSON already"


@pytest.mark.parametrize(
    ("path", "table", "change"),
    [
        ("/agents", tables.agents, {"system_prompt": "x" * 5 * MIB}),
        ("/tools", tables.tools, {"description": "x" * 5 * MIB}),
        ("/phone-numbers", tables.phone_numbers, {"name": "x" * 5 * MIB}),
    ],
)
async def test_a_stored_agent_larger_than_a_page_is_returned_alone(
    api: Api, path: str, table: sa.Table, change: dict[str, Any]
) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/agents": {"name": "x"},
        "/tools": {"name": "x", **HTTP},
        "/phone-numbers": {"number": "12"},
    }
    await api.create(path, {**bodies[path], **({"provider": "sip"} if path == "/phone-numbers" else {})})
    await api.services.database.write(lambda conn: conn.execute(sa.update(table).values(**change)))
    small = await api.create(
        path, {**bodies[path], "number": "13", "provider": "sip"} if "phone" in path else {**bodies[path], "name": "y"}
    )
    assert [len(page) for page in await _pages(api, path)] == [1, 1]
    assert (await _pages(api, path))[0] == [small["id"]]


async def test_no_more_rows_are_read_than_fit_into_a_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = tools.TOOL.build

    def counted(row: Any) -> tools.StoredTool:
        tool = build(row)
        built.append(tool.id)
        return tool

    await api.create("/tools", {"name": "Large", "description": "x" * 4000, **HTTP})
    await _copies(api, tables.tools, 100)
    monkeypatch.setattr(serialization, "MAX_PAGE", 20_000)
    monkeypatch.setattr(tools.TOOL, "build", counted)
    _, answer = await api("GET", "/tools?limit=100&offset=50")
    assert (len(answer["data"]), answer["pagination"]["total"]) == (4, 100)
    assert len(built) == BATCH_ROWS


@pytest.mark.parametrize("room", [1, 3000, 3001, 9000])
async def test_a_page_never_exceeds_its_maximum_size(api: Api, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    for number in range(12):
        await api.create("/tools", {"name": f"{number}", **HTTP})
    monkeypatch.setattr(serialization, "MAX_PAGE", room)
    response = await api.raw("GET", "/tools")
    body = await response.read()
    assert len(body) <= room or len(json.loads(body)["data"]) == 1
    assert json.loads(body)["pagination"]["total"] == 12


async def test_the_list_of_all_background_sounds_of_a_quota_fits_into_a_page(api: Api) -> None:
    largest = sounds.BackgroundSoundFields(
        name="😀" * MAX_NAME, description="😀" * MAX_DESCRIPTION, file_size=10**9, duration_ms=10**9
    )

    def fill(conn: sa.Connection) -> None:
        for _ in range(QuotaSettings().sounds):
            sounds.create(conn, api.organization_id, str(uuid4()), largest)

    await api.services.database.write(fill)
    async with api.client.get("/v1/background-sounds", headers={"Authorization": f"Bearer {api.key}"}) as response:
        body = await response.read()
    assert response.status == 200
    assert len(json.loads(body)["data"]) >= QuotaSettings().sounds
    assert len(body) <= 4 * MIB
