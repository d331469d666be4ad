"""A request that is cut off by its timeout has done its work completely, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from structlog.testing import capture_logs

from api.app import create_app
from api.resources.sounds import background_sounds
from storage.accounts import idempotency
from storage.accounts.idempotency import IdempotencyScope, StoredResponse
from tests.api.conftest import Api, StartApi
from tests.api.resources.test_background_sounds import WAV, files, listed, upload
from tests.database_template import refuse_rows, sqlite_only, without_time_limit
from tests.trunkline.server_process import until

DEADLINE_S = 1.5
NUMBER = {"number": "100", "provider": "sip"}
one_writer = sqlite_only("a write of no organization that waits excludes only itself, and is ended after two seconds")


@pytest.fixture
async def api(start_api: StartApi) -> Api:
    started: Api = await start_api({"api": {"request_timeout_s": DEADLINE_S}})
    return started


@asynccontextmanager
async def busy_database(api: Api) -> AsyncIterator[Callable[[], None]]:
    """Another write runs until the function is called or the block ends."""
    await api.services.database.write(lambda _conn: None)  # those of the start come first
    freed = threading.Event()

    def wait(conn: sa.Connection) -> None:
        without_time_limit(conn)
        freed.wait(30)

    other = asyncio.create_task(api.services.database.write(wait))
    try:
        yield freed.set
    finally:
        freed.set()
        await other


async def _post(api: Api, path: str, body: Any, key: str | None = None) -> ClientResponse:
    return await api.raw("POST", path, body, headers={} if key is None else {"Idempotency-Key": key})


async def _writes_wait(api: Api, count: int) -> None:
    await until(lambda: api.services.database.waiting_writes == count, every_s=0.005)


@one_writer
@pytest.mark.parametrize("second", [{"name": "b"}, {"name": 1}], ids=["valid", "invalid"])
async def test_a_repetition_gets_the_response_of_a_request_that_was_cut_off(api: Api, second: Any) -> None:
    async with busy_database(api) as free:
        assert (await _post(api, "/agents", {"name": "a"}, "k")).status == 503
        again = asyncio.create_task(_post(api, "/agents", second, "k"))
        await _writes_wait(api, 2)
        free()
        answer = await again
    assert (answer.status, answer.headers["Idempotent-Replay"]) == (201, "true")
    _, agents = await api("GET", "/agents")
    assert agents["data"] == [(await answer.json())["data"]]


@one_writer
async def test_a_repetition_undoes_its_preparation_and_does_not_run_the_handler(api: Api) -> None:
    async with busy_database(api) as free:
        assert (await _post(api, "/background-sounds", upload(), "k")).status == 503
        again = asyncio.create_task(_post(api, "/background-sounds", upload(), "k"))
        await _writes_wait(api, 2)
        assert len(files(api)) == 2
        free()
        answer = await again
        if answer.status == 503:  # on a busy machine the upload was still being decoded
            answer = await _post(api, "/background-sounds", upload(), "k")
    assert answer.headers["Idempotent-Replay"] == "true"
    created = (await answer.json())["data"]
    assert (await listed(api), files(api)) == ([created], [f"{created['id']}.wav"])


@one_writer
async def test_a_stored_response_runs_neither_handler_nor_callbacks(api: Api) -> None:
    async with busy_database(api) as free:
        assert (await _post(api, "/phone-numbers", NUMBER, "k")).status == 503
        again = asyncio.create_task(_post(api, "/phone-numbers", NUMBER, "k"))
        await _writes_wait(api, 2)
        free()
        assert (await again).status == 201
    assert len(api.number_changes) == 1


async def test_the_first_stored_error_wins_when_two_servers_reject_at_once(api: Api) -> None:
    database, secrets = api.services.database, api.services.secrets
    scope, own, other = (
        IdempotencyScope(api.organization_id, "POST", "/v1/agents", "k"),
        StoredResponse(404, b"{}"),
        StoredResponse(400, b"{}"),
    )
    for answer in (own, other):
        first = await database.write(
            lambda conn, answer=answer: idempotency.find_or_store(conn, secrets, scope, answer)  # type: ignore[misc]
        )
        assert first == own


async def test_callbacks_after_commit_run_also_when_the_client_has_disconnected(api: Api) -> None:
    async with busy_database(api):
        assert (await _post(api, "/phone-numbers", NUMBER)).status == 503
        assert api.number_changes == []
    await until(lambda: api.number_changes)
    _, numbers = await api("GET", "/phone-numbers")
    assert (len(numbers["data"]), len(api.number_changes)) == (1, 1)


async def test_a_shutdown_waits_for_shielded_tasks(api: Api) -> None:
    async with busy_database(api) as free:
        assert (await _post(api, "/phone-numbers", NUMBER)).status == 503
        stop = asyncio.create_task(api.client.close())
        free()
        await stop
        assert len(api.number_changes) == 1


async def test_an_upload_that_is_cut_off_before_its_transaction_is_stored_completely(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off, store = threading.Event(), background_sounds._store

    def late(*args: Any) -> Any:
        cut_off.wait(30)
        return store(*args)

    monkeypatch.setattr(background_sounds, "_store", late)
    try:
        assert (await _post(api, "/background-sounds", upload())).status == 503
        assert files(api) == []
    finally:
        cut_off.set()
    await api.client.close()
    stored = await api.services.database.read(
        lambda conn: conn.scalar(sa.text("SELECT count(*) FROM background_sounds"))
    )
    assert (stored, len(files(api))) == (1, 1)


async def test_a_cut_off_upload_that_fails_leaves_no_file_and_is_logged(api: Api) -> None:
    await api.services.database.write(partial(refuse_rows, table="background_sounds"))
    with capture_logs() as logs:
        async with busy_database(api):
            assert (await _post(api, "/background-sounds", upload(WAV))).status == 503
            await until(lambda: len(files(api)) == 1)  # the decoder may still run
        await api.client.close()
    assert files(api) == []
    (line,) = [each for each in logs if each["event"] == "api.cut_off_work_failed"]
    assert isinstance(line["exc_info"], sa.exc.IntegrityError)


async def test_a_domain_error_of_a_cut_off_request_is_logged_without_a_traceback(api: Api) -> None:
    unknown = {
        "agentId": "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
        "phoneNumberId": "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
    }
    with capture_logs() as logs:
        async with busy_database(api):
            assert (await _post(api, "/calls", {**unknown, "to": "+4930123456"})).status == 503
        await api.client.close()
    (line,) = [each for each in logs if each["event"] == "api.cut_off_work_failed"]
    assert (line["log_level"], line["error"]) == ("warning", "NotFound('Agent not found')")
    assert "exc_info" not in line


async def test_an_error_in_a_callback_after_commit_is_logged_and_the_request_succeeds(api: Api) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    app = create_app(replace(api.services, phone_numbers_changed=broken))
    async with TestClient(TestServer(app)) as client:
        with capture_logs() as logs:
            answer = await _post(replace(api, client=client), "/phone-numbers", NUMBER)
    assert answer.status == 201
    assert [each["log_level"] for each in logs if each["event"] == "api.follow_up_failed"] == ["error"]


async def test_an_error_in_undo_does_not_hide_the_cause(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("storage.background_sounds.sounds.remove_file", broken)
    await api.services.database.write(partial(refuse_rows, table="background_sounds"))
    with capture_logs() as logs:
        assert (await _post(api, "/background-sounds", upload())).status == 500
    failed = [each["event"] for each in logs if each["log_level"] == "error"]
    assert failed == ["api.undo_failed", "api.request_failed"]
