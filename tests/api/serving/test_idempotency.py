"""`Idempotency-Key`: repeated and concurrent requests create one resource and get one response."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp import ClientResponse
from structlog.testing import capture_logs

from api.serving import idempotency
from api.serving.idempotency import IdempotencyStore
from config.clock import utc_now
from config.settings_tables import QuotaSettings
from storage.accounts import idempotency as idempotent_answers
from storage.tables import idempotent_answers as table
from tests.api.conftest import Api, StartApi
from tests.database_template import refuse_rows, take_rows
from tests.trunkline.server_process import until


async def _post(api: Api, key: str, body: Any = None, path: str = "/agents", **more: Any) -> ClientResponse:
    return await api.raw(
        "POST", path, {"name": "a"} if body is None else body, headers={"Idempotency-Key": key}, **more
    )


async def _agents(api: Api) -> int:
    _, answer = await api("GET", "/agents")
    total: int = answer["pagination"]["total"]
    return total


async def _grow_old(api: Api, age: timedelta) -> None:
    await api.services.database.write(lambda conn: conn.execute(sa.update(table).values(created_at=utc_now() - age)))


async def test_a_repetition_gets_the_first_response_byte_for_byte(api: Api) -> None:
    first = await _post(api, "k")
    again = await _post(api, "k", {"name": "another"})
    assert (first.status, again.status) == (201, 201)
    assert await first.read() == await again.read()
    assert first.headers.get("Idempotent-Replay") is None
    assert again.headers["Idempotent-Replay"] == "true"
    assert again.headers["Content-Type"] == first.headers["Content-Type"]
    assert again.headers["X-Request-Id"] != first.headers["X-Request-Id"]
    assert await _agents(api) == 1


@pytest.mark.parametrize("second", ["{", "[]", "", '{"name": 1}'])
async def test_a_repetition_with_another_body_gets_the_first_response(api: Api, second: str) -> None:
    first = await _post(api, "k")
    again = await api.raw("POST", "/agents", data=second, headers={"Idempotency-Key": "k"})
    assert (again.status, await again.read()) == (201, await first.read())


async def test_concurrent_requests_with_one_key_create_one_resource(api: Api) -> None:
    answers = await asyncio.gather(*(_post(api, "k", {"name": f"n{number}"}) for number in range(12)))
    assert {answer.status for answer in answers} == {201}
    assert len({await answer.read() for answer in answers}) == 1
    assert [answer.headers.get("Idempotent-Replay") for answer in answers].count(None) == 1
    assert await _agents(api) == 1


async def test_a_key_is_scoped_to_organization_and_path(api: Api) -> None:
    other = await api.as_another_organization()
    await _post(api, "k")
    assert "Idempotent-Replay" not in (await _post(other, "k")).headers
    number = {"number": "100", "provider": "sip"}
    assert "Idempotent-Replay" not in (await _post(api, "k", number, "/phone-numbers")).headers
    assert "Idempotent-Replay" not in (await _post(api, "K")).headers
    assert (await _agents(api), await _agents(other)) == (2, 1)


async def test_a_stored_response_survives_a_restart(start_api: StartApi, api: Api) -> None:
    first = await (await _post(api, "k")).read()
    await api.client.close()
    again: Api = replace(await start_api(fresh=False), key=api.key)
    answer = await _post(again, "k")
    assert (answer.status, await answer.read()) == (201, first)
    assert answer.headers["Idempotent-Replay"] == "true"


async def test_a_stored_response_expires_after_24_hours(api: Api) -> None:
    await _post(api, "k")
    await _grow_old(api, timedelta(hours=23, minutes=59))
    assert "Idempotent-Replay" in (await _post(api, "k")).headers
    await _grow_old(api, timedelta(hours=24))
    assert "Idempotent-Replay" not in (await _post(api, "k")).headers
    assert "Idempotent-Replay" in (await _post(api, "k")).headers
    assert await _agents(api) == 2


async def test_expired_responses_are_purged(api: Api) -> None:
    for key in ("old", "young"):
        await _post(api, key)
        if key == "old":
            await _grow_old(api, timedelta(hours=24))
    async with IdempotencyStore(
        api.services.database, api.services.secrets, QuotaSettings().model_dump()
    ).purge_periodically():
        await api.services.database.write(lambda conn: None)  # in turn behind the purge
    keys = await api.services.database.read(lambda conn: conn.execute(sa.select(table.c.key)).scalars().all())
    assert keys == ["young"]
    assert (
        await api.services.database.write(lambda conn: idempotent_answers.delete_expired(conn, utc_now(), limit=9)) == 0
    )


async def test_an_unexpected_error_of_the_purge_is_logged_and_the_purge_is_repeated(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "PURGE_EVERY_S", 0.01)
    await _post(api, "old")
    await _grow_old(api, timedelta(hours=24))
    database, purged, purge = api.services.database, asyncio.Event(), idempotent_answers.delete_expired
    loop = asyncio.get_running_loop()

    def count_purged(conn: sa.Connection, now: datetime, *, limit: int) -> int:
        deleted = purge(conn, now, limit=limit)
        loop.call_soon_threadsafe(purged.set)
        return deleted

    async def run(statement: str) -> None:
        await database.write(lambda conn: conn.execute(sa.text(statement)))

    monkeypatch.setattr(idempotent_answers, "delete_expired", count_purged)
    await run("ALTER TABLE idempotent_answers RENAME TO answers_elsewhere")
    with capture_logs() as logs:
        async with IdempotencyStore(database, api.services.secrets, QuotaSettings().model_dump()).purge_periodically():
            await until(lambda: logs)
            await run("ALTER TABLE answers_elsewhere RENAME TO idempotent_answers")
            await asyncio.wait_for(purged.wait(), 10)
    assert {(each["event"], each["exc_info"]) for each in logs} == {("idempotency.not_purged", True)}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/agents", {"name": ""}, 400),
        ("/agents", {"name": "x" * 2_000_000}, 413),
    ],
)
async def test_a_client_error_is_stored(api: Api, path: str, body: Any, status: int) -> None:
    first = await _post(api, "k", body, path)
    again = await _post(api, "k", {"name": "right"}, path)
    assert (first.status, again.status) == (status, status)
    assert await first.read() == await again.read()
    assert again.headers["Idempotent-Replay"] == "true"
    assert await _agents(api) == 0


async def test_401_and_429_are_not_stored(start_api: StartApi) -> None:
    now = 1_000_000.0
    api: Api = await start_api(requests_per_minute=1, now_s=lambda: now)
    wrong = await api.client.post(
        "/v1/agents", json={"name": "a"}, headers={"Authorization": "Bearer tk_wrong", "Idempotency-Key": "k"}
    )
    assert (wrong.status, (await api("GET", "/agents"))[0]) == (401, 200)
    assert (await _post(api, "k")).status == 429
    now += 60
    answer = await _post(api, "k")
    assert (answer.status, answer.headers.get("Idempotent-Replay")) == (201, None)


async def test_a_server_error_is_not_stored(api: Api) -> None:
    def break_agents(conn: sa.Connection) -> None:
        conn.execute(sa.text("ALTER TABLE agents RENAME TO agents_elsewhere"))

    def mend_agents(conn: sa.Connection) -> None:
        conn.execute(sa.text("ALTER TABLE agents_elsewhere RENAME TO agents"))

    await api.services.database.write(break_agents)
    assert (await _post(api, "k")).status == 500
    await api.services.database.write(mend_agents)
    answer = await _post(api, "k")
    assert (answer.status, answer.headers.get("Idempotent-Replay")) == (201, None)


async def test_the_response_is_stored_in_the_transaction_of_the_handler(api: Api) -> None:
    await api.services.database.write(partial(refuse_rows, table="idempotent_answers"))
    assert (await _post(api, "k")).status == 500
    assert await _agents(api) == 0
    await api.services.database.write(partial(take_rows, table="idempotent_answers"))
    assert (await _post(api, "k")).status == 201
    assert await _agents(api) == 1


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "ä", "tab\there"])
async def test_a_malformed_key_is_rejected_with_the_name_of_the_header(api: Api, key: str) -> None:
    response = await _post(api, key)
    assert response.status == 400
    answer = await response.json()
    assert answer["error"] == "Validation failed"
    assert [each["field"] for each in answer["details"]] == ["Idempotency-Key"]
    assert await _agents(api) == 0


@pytest.mark.parametrize("key", ["!", "~" * 255, 'a"b', "a,b"])
async def test_every_visible_ascii_character_is_valid_in_a_key(api: Api, key: str) -> None:
    assert [(await _post(api, key)).status for _ in range(2)] == [201, 201]
    assert await _agents(api) == 1


async def test_two_keys_are_rejected(api: Api) -> None:
    headers = [("Authorization", f"Bearer {api.key}"), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    response = await api.client.post("/v1/agents", json={"name": "a"}, headers=headers)
    assert response.status == 400
    assert (await response.json())["details"][0]["field"] == "Idempotency-Key"


async def test_other_methods_ignore_the_key(api: Api) -> None:
    agent = await api.create("/agents", {"name": "a"})
    for name in ("b", "c"):
        response = await api.raw(
            "PATCH", f"/agents/{agent['id']}", {"name": name}, headers={"Idempotency-Key": "not a key"}
        )
        assert (await response.json())["data"]["name"] == name


async def test_no_lock_is_left_behind(api: Api) -> None:
    store = IdempotencyStore(api.services.database, api.services.secrets, QuotaSettings().model_dump())
    scope = idempotent_answers.IdempotencyScope(api.organization_id, "POST", "/v1/agents", "k")

    async def turn() -> None:
        async with store._lock(scope):
            await asyncio.sleep(0)

    await asyncio.gather(*(turn() for _ in range(5)))
    assert store._locks == {}
