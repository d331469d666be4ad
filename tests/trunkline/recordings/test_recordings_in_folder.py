"""Recordings of real calls in a folder that nodes share."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from datetime import datetime

import pytest
import pytest_asyncio

from calls.post_call import recording_uploader
from storage.calls import recordings
from storage.recording_store.folder_store import MARKER
from tests.trunkline.phone_calls import agent_call, scripted
from tests.trunkline.server_in_process import LocalServer, open_local_server

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def recorded_call(server: LocalServer) -> str:
    async with agent_call(server, "Yes.") as call:
        await call.phone.hears(50)
        await call.phone.hang_up()
    await server.ended(call.call_id)
    return call.call_id


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module; its recordings are in the folder `shared` beside its data directory."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "shared").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording_uploader, "MAX_BACKOFF_S", 0.2)
        async with open_local_server(folder / "data", scripted, recordings={"url": str(folder / "shared")}) as server:
            yield server


async def test_a_recording_is_moved_served_and_deleted_also_after_the_folder_was_away(
    local_server: LocalServer,
) -> None:
    server, data_dir = local_server, local_server.server.settings.data_dir
    shared, unmounted = data_dir.parent / "shared", data_dir.parent / "unmounted"
    assert await asyncio.to_thread((shared / MARKER).exists)
    await asyncio.to_thread(shutil.move, shared, unmounted)
    call_id = await recorded_call(server)
    await server.log.event("recordings.store_away")
    created_at = datetime.fromisoformat((await server.client.call(call_id))["createdAt"])
    local, moved = (recordings.path_of(each, call_id, created_at) for each in (data_dir, shared))
    content = await asyncio.to_thread(local.read_bytes)
    assert await server.client.recording(call_id) == content
    await asyncio.to_thread(shutil.move, unmounted, shared)
    await server.log.event("recording.stored", call_id=call_id)
    assert await asyncio.to_thread(moved.read_bytes) == content
    assert not await asyncio.to_thread(local.exists)
    assert await server.client.recording(call_id) == content
    await server.client.v1("DELETE", f"calls/{call_id}")
    await server.log.event("retention.removed", files=1)
    assert not await asyncio.to_thread(moved.exists)
