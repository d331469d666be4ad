"""`kill -9` of a server while it moves a recording to the store: the next start completes the move."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from storage.recording_store.s3_store import S3RecordingStore
from tests.peers.seaweedfs import Relay, S3Server, bucket_at
from tests.trunkline.api_client import Client
from tests.trunkline.recordings.conftest import recordings_at
from tests.trunkline.server_process import Server
from tests.trunkline.sip_phone import calling, known

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest_asyncio.fixture(loop_scope="package")
async def relay(s3_server: S3Server) -> AsyncIterator[Relay]:
    """What a server reaches the store by."""
    async with Relay(s3_server.port) as relay:
        yield relay


async def has_call(server: Server, client: Client) -> str:
    """Hold a call; returns its id once it is closed."""
    await client.number("100", await client.agent())
    await known(server.target)
    async with calling(server.target) as phone:
        call_id = str((await server.event("call.answered"))["call_id"])
        await phone.hears(50)
        await phone.hang_up()
    await server.event("call.ended", call_id=call_id)
    return call_id


@pytest.mark.parametrize("killed_at", [b"PUT ", b"HEAD "], ids=["during the upload", "between upload and removal"])
async def test_a_recording_is_moved_by_the_next_start(
    s3_server: S3Server, relay: Relay, tmp_path: Path, killed_at: bytes
) -> None:
    prefix = str(uuid4())
    store = S3RecordingStore(bucket_at(s3_server.port, prefix))
    server = Server(tmp_path, recordings=await asyncio.to_thread(recordings_at, tmp_path, relay.port, prefix))
    key = await server.key()
    async with server, Client(server.origin, key, server.secrets) as client:
        relay.hold_at = b"PUT "
        call_id = await has_call(server, client)
        await asyncio.wait_for(relay.is_holding.wait(), 20)
        if killed_at != relay.hold_at:  # the upload may go on; the question for its size is held
            relay.is_holding.clear()
            relay.hold_at = killed_at
            await relay.restore()
            await asyncio.wait_for(relay.is_holding.wait(), 20)
        await server.kill()
        [path] = await asyncio.to_thread(lambda: list((tmp_path / "data/recordings").glob("*/*/*.wav")))
        content = await asyncio.to_thread(path.read_bytes)
        was_uploaded = await store.size(path.relative_to(tmp_path / "data").as_posix())
        assert was_uploaded == (None if killed_at == b"PUT " else len(content))
        relay.hold_at = None
        await relay.restore()
        before = relay.passed_bytes
        await server.start()
        await server.event("recording.stored", call_id=call_id)
        assert (relay.passed_bytes - before > len(content)) == (was_uploaded is None), "no object is sent twice"
        assert not await asyncio.to_thread(path.exists)
        assert await client.recording(call_id) == content


async def test_a_stop_does_not_wait_for_a_store_that_does_not_answer(
    s3_server: S3Server, relay: Relay, tmp_path: Path
) -> None:
    table = await asyncio.to_thread(recordings_at, tmp_path, relay.port, str(uuid4()))
    server = Server(tmp_path, recordings=table)
    key = await server.key()
    async with server, Client(server.origin, key, server.secrets) as client:
        relay.hold_at = b"PUT "
        await has_call(server, client)
        await asyncio.wait_for(relay.is_holding.wait(), 20)
        server.signal(signal.SIGTERM)
        assert await server.ended(timeout_s=10) == 0
