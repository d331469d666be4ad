"""A server whose disk is full during a call, and then has space again."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.transcripts import without_times
from tests.trunkline.conftest import GREETING, Office, open_office
from tests.trunkline.server_process import Server
from tests.trunkline.sip_phone import calling
from tests.trunkline.small_disk import filled, tiny_disk

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest_asyncio.fixture(loop_scope="package")
async def small(tmp_path: Path) -> AsyncIterator[Office]:
    """A server with its data on a disk of 64 MiB."""
    with tiny_disk(tmp_path / "data", "64m"):
        async with open_office(Server(tmp_path)) as small:
            yield small


async def readiness(small: Office) -> tuple[int, dict[str, Any]]:
    status, body = await small.client.get("/readyz")
    return status, json.loads(body)


async def upload(small: Office) -> int:
    content = b"RIFF" + bytes(40_000)
    body = {
        "name": "hum", "filename": "hum.wav", "mimeType": "audio/wav", "fileSize": len(content),
        "fileBase64": base64.b64encode(content).decode(),
    }  # fmt: skip
    return await small.client.status("POST", "background-sounds", body)


async def test_calls_survive_a_full_disk_and_are_stored_when_there_is_space(small: Office) -> None:
    server, client, data_dir = small.server, small.client, small.server.data_dir
    assert (await readiness(small))[0] == 200
    assert await upload(small) == 400, "there is room for it; it is no sound"
    since = server.log.mark()
    async with calling(server.target) as call:
        first = (await server.event("call.answered", since=since))["call_id"]
        with filled(data_dir):
            await server.event("disk.full", since=since)
            status, state = await readiness(small)
            assert (status, state["status"]) == (503, "unavailable")
            assert str(data_dir) in state["checks"]["disk"] and "full" in state["checks"]["disk"]
            assert state["uploadsRefused"] is not None
            assert state["callsRefused"] is None
            assert await upload(small) == 507
            assert await client.status("POST", "agents", {"name": "one more"}) == 507
            assert (await call.hears(50)).size, "the call goes on"
            async with calling(server.target) as other:
                await server.log.events_of("call.answered", 2, since=since)
                second = server.log.all("call.answered", since)[1]["call_id"]
                assert (await other.hears(50)).size
                await other.hang_up()
            await call.has_heard(300)
            await call.hang_up()
        await server.event("disk.has_room", since=since)
    for call_id in (first, second):
        await server.event("call.ended", call_id=call_id, reason="customer_ended")
        found = await client.call(call_id)
        assert (found["status"], found["endedReason"]) == ("completed", "customer_ended")
        _, body = await small.receiver.about(call_id)
        assert json.loads(body)["callId"] == call_id
    found = await client.call(first)
    assert without_times(found["transcript"]) == [{"role": "assistant", "content": GREETING}]
    assert (await readiness(small))[0] == 200
    assert await upload(small) == 400
    assert len(server.log.all("disk.full", since)) == 1, "it is told once"
    assert not server.log.all("call.end_not_stored", since)
