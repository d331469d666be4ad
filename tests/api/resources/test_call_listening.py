"""GET /v1/calls/{id}/listen without audio: what is refused, and what is in the audit log."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from storage.accounts import audit_log
from tests.api.conftest import Api, StartApi
from tests.storage.calls.transfer_makers import parent_call

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


async def in_progress(api: Api) -> str:
    call = await api.services.database.write(lambda conn: parent_call(conn, api.organization_id))
    return call.id


@pytest.mark.parametrize("known", [True, False])
async def test_listening_is_forbidden_by_default(api: Api, known: bool) -> None:
    call_id = await in_progress(api) if known else str(uuid4())
    status, answer = await api("GET", f"/calls/{call_id}/listen")
    assert status == 403
    assert answer["error"] == "Listening to calls is not allowed: see the setting [dashboard] listen"


async def test_a_call_that_is_not_live_is_409_and_in_no_audit_log(start_api: StartApi) -> None:
    api: Api = await start_api({"dashboard": {"listen": True}})
    call_id = await in_progress(api)
    url = api.client.make_url(f"/v1/calls/{call_id}/listen")
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    headers = {"Authorization": f"Bearer {api.key}", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **upgrade}
    async with api.client.session.get(url, headers=headers) as response:
        assert (response.status, await response.json()) == (409, {"error": "The call is not in progress"})
    async with api.client.session.get(url, headers={**headers, "Origin": "https://evil.example"}) as response:
        assert response.status == 403
    owner, database = api.organization_id, api.services.database
    assert await database.read(lambda conn: audit_log.entries_since(conn, owner, EPOCH)) == []
