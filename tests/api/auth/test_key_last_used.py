"""`lastUsedAt` of API keys is written periodically; an error does not end that."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from api.auth import key_last_used
from api.auth.key_last_used import LastUsedRecorder
from storage.accounts import api_keys
from tests.api.conftest import Api
from tests.trunkline.server_process import until


async def _last_use(api: Api) -> datetime | None:
    (key,) = await api.services.database.read(api_keys.all_of)
    return key.last_used_at


async def test_an_unexpected_error_is_logged_and_the_times_are_written_later(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_last_used, "WRITE_EVERY_S", 0.01)
    database = api.services.database
    (key,) = await database.read(api_keys.all_of)
    await database.write(lambda conn: conn.execute(sa.text("ALTER TABLE api_keys RENAME TO keys_elsewhere")))
    uses = LastUsedRecorder(database)
    uses.record(key.id)
    with capture_logs() as logs:
        async with uses.write_periodically():
            await until(lambda: logs)
            await database.write(lambda conn: conn.execute(sa.text("ALTER TABLE keys_elsewhere RENAME TO api_keys")))
            async with asyncio.timeout(20):
                while await _last_use(api) is None:  # noqa: ASYNC110 - a periodic task writes it, without an event
                    await asyncio.sleep(key_last_used.WRITE_EVERY_S)
    assert logs[0]["event"] == "api_keys.last_use_not_written"
    assert (logs[0]["log_level"], logs[0]["exc_info"]) == ("error", True)
    assert await _last_use(api) is not None


async def test_an_error_of_the_last_write_does_not_prevent_the_shutdown(api: Api) -> None:
    database = api.services.database
    (key,) = await database.read(api_keys.all_of)
    await database.write(lambda conn: conn.execute(sa.text("ALTER TABLE api_keys RENAME TO keys_elsewhere")))
    uses = LastUsedRecorder(database)
    with capture_logs() as logs:
        async with uses.write_periodically():
            uses.record(key.id)
    assert [each["event"] for each in logs] == ["api_keys.last_use_not_written"]
