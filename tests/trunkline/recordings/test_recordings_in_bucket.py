"""Recordings of real calls in a bucket of a real S3-compatible server: moved there after the call, served from there,
removed there, and kept on the local disk while the server is away."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from calls.post_call import recording_uploader
from storage.calls import deletion, recordings
from storage.recording_store import s3_store
from storage.recording_store.s3_store import S3RecordingStore
from tests.peers.seaweedfs import ACCESS_KEY, SECRET_KEY, Relay, S3Server, bucket_at
from tests.trunkline.phone_calls import agent_call, scripted
from tests.trunkline.recordings.conftest import recordings_at
from tests.trunkline.server_in_process import LocalServer, open_local_server
from trunkline.replay.replay import find_case

pytestmark = pytest.mark.asyncio(loop_scope="package")
PREFIX: Final = "in/process"


@dataclass
class Place:
    """A server, the relay before its store, and the store without the relay."""

    server: LocalServer
    relay: Relay
    store: S3RecordingStore
    data_dir: Path
    session: aiohttp.ClientSession

    async def recorded_call(self) -> str:
        """Hold a call of a second; returns its id."""
        async with agent_call(self.server, "Yes.") as call:
            await call.phone.hears(50)
            await call.phone.hang_up()
        await self.server.ended(call.call_id)
        return call.call_id

    async def stored_call(self) -> str:
        """Hold a call, and wait until its recording is in the store; returns its id."""
        call_id = await self.recorded_call()
        await self.server.log.event("recording.stored", call_id=call_id)
        return call_id

    async def path(self, call_id: str) -> Path:
        """Where the recording is on the local disk."""
        call = await self.server.client.call(call_id)
        return recordings.path_of(self.data_dir, call_id, datetime.fromisoformat(call["createdAt"]))

    async def key(self, call_id: str) -> str:
        """The key of the recording in the store."""
        return (await self.path(call_id)).relative_to(self.data_dir).as_posix()

    async def get(
        self, call_id: str, part: str = "recording", method: str = "GET", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a request about a call."""
        url = f"{self.server.client.origin}/v1/calls/{call_id}/{part}"
        given = {"Authorization": f"Bearer {self.server.client.key}", **headers}
        async with self.session.request(method, url, headers=given) as response:
            return response.status, dict(response.headers), await response.read()


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def place(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """The server of this module."""
    folder = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording_uploader, "MAX_BACKOFF_S", 0.2)
        patch.setattr(s3_store, "REPLY_S", 1.0)
        async with Relay(s3_server.port) as relay, aiohttp.ClientSession(trust_env=False) as session:
            table = await asyncio.to_thread(recordings_at, folder, relay.port, PREFIX)
            async with open_local_server(folder / "data", scripted, recordings=table) as server:
                store = S3RecordingStore(bucket_at(s3_server.port, PREFIX))
                yield Place(server, relay, store, folder / "data", session)
            secrets = [line for line in server.log.lines if ACCESS_KEY in line or SECRET_KEY in line]
            assert not secrets


async def test_a_recording_waits_on_the_disk_while_the_store_is_away_and_is_then_served_from_the_store(
    place: Place,
) -> None:
    since = place.server.log.mark()
    await place.relay.cut()
    call_id = await place.recorded_call()
    await place.server.log.event("recordings.store_away", since=since)
    path = await place.path(call_id)
    content = await asyncio.to_thread(path.read_bytes)
    assert len(content) > 20_000
    assert (await place.get(call_id))[::2] == (200, content)
    assert REGISTRY.get_sample_value("trunkline_recordings_waiting") == 1
    await asyncio.sleep(0.5)  # further attempts fail
    await place.relay.restore()
    assert (await place.server.log.event("recording.stored", call_id=call_id))["bytes"] == len(content)
    assert len(place.server.log.all("recordings.store_away", since)) == 1
    assert len(place.server.log.all("recordings.store_back", since)) == 1
    assert not await asyncio.to_thread(path.exists)
    assert await place.store.size(await place.key(call_id)) == len(content)
    assert REGISTRY.get_sample_value("trunkline_recordings_waiting") == 0
    assert (REGISTRY.get_sample_value("trunkline_recording_uploads_total", {"outcome": "failed"}) or 0) >= 2

    status, headers, body = await place.get(call_id)
    assert (status, headers["Content-Type"], headers["Accept-Ranges"]) == (200, "audio/wav", "bytes")
    assert body == content
    size = len(content)
    status, headers, body = await place.get(call_id, method="HEAD")
    assert (status, headers["Content-Length"], headers["Accept-Ranges"], body) == (200, str(size), "bytes", b"")
    for named, first, last in (
        ("bytes=0-0", 0, 0),
        ("bytes=44-9999", 44, 9999),
        ("bytes=1000-", 1000, size - 1),
        ("bytes=-7", size - 7, size - 1),
        (f"bytes=5-{size + 100}", 5, size - 1),
    ):
        status, headers, body = await place.get(call_id, Range=named)
        assert (status, headers["Content-Range"]) == (206, f"bytes {first}-{last}/{size}")
        assert (headers["Content-Length"], body) == (str(last + 1 - first), content[first : last + 1])
    status, headers, _ = await place.get(call_id, Range=f"bytes={size}-")
    assert (status, headers["Content-Range"]) == (416, f"bytes */{size}")


async def test_everything_that_reads_a_recording_reads_it_from_the_store(place: Place) -> None:
    call_id = await place.stored_call()
    _, _, content = await place.get(call_id)
    status, _, body = await place.get(call_id, "waveform")
    assert status == 200 and b'"caller":[' in body
    status, _, body = await place.get(call_id, "export")
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.read("recording.wav") == content
    call = await place.server.client.call(call_id)
    case = await find_case(place.server.server.settings, call_id)  # of `trunkline replay`
    assert case.recording.ticks == len(content[44:]) // 4 // case.recording.frame
    url = call["recordingUrl"]
    async with place.session.get(url) as response:  # a signed link
        assert (response.status, await response.read()) == (200, content)


async def test_without_the_store_a_download_is_refused_within_seconds(place: Place) -> None:
    call_id = await place.stored_call()
    loop = asyncio.get_running_loop()
    for make_away in (place.relay.cut, _held(place.relay)):
        await make_away()
        began_s = loop.time()
        for part in ("recording", "waveform", "export"):
            status, headers, body = await place.get(call_id, part)
            assert (status, body) == (503, b'{"error":"The store of recordings cannot be reached"}')
            assert headers["Retry-After"] == "10"
        assert loop.time() - began_s < 10
        await place.relay.restore()
    assert (await place.get(call_id))[0] == 200


def _held(relay: Relay) -> Any:
    async def hold() -> None:
        relay.hold()

    return hold


async def test_a_call_is_deleted_with_the_object_also_if_the_store_was_away(place: Place) -> None:
    call_id, other = await place.stored_call(), await place.stored_call()
    key, other_key = await place.key(call_id), await place.key(other)
    await place.relay.cut()
    since = place.server.log.mark()
    await place.server.client.v1("DELETE", f"calls/{call_id}")
    await place.server.log.event("recordings.store_away", since=since)
    assert await place.store.size(key) is not None
    waiting = await place.server.server.database.read(lambda conn: deletion.pending_file_removals(conn, limit=10))
    assert [each[0] for each in waiting] == [call_id]
    await place.relay.restore()
    await place.server.client.v1("DELETE", f"calls/{other}")  # wakes what removes files
    await place.server.log.event("retention.removed", since=since, files=2)
    assert (await place.store.size(key), await place.store.size(other_key)) == (None, None)
    assert await place.server.server.database.read(lambda conn: deletion.pending_file_removals(conn, limit=10)) == []


async def test_a_call_that_is_deleted_while_its_recording_waits_leaves_nothing(place: Place) -> None:
    await place.relay.cut()
    call_id = await place.recorded_call()
    path, key = await place.path(call_id), await place.key(call_id)
    since = place.server.log.mark()
    await place.server.client.v1("DELETE", f"calls/{call_id}")
    await place.relay.restore()
    later = await place.stored_call()
    await place.server.client.v1("DELETE", f"calls/{later}")
    await place.server.log.event("retention.removed", since=since)
    assert not await asyncio.to_thread(path.exists)
    assert await place.store.size(key) is None


async def test_a_recording_that_is_lost_is_not_found(place: Place) -> None:
    call_id = await place.stored_call()
    await place.store.remove(await place.key(call_id))
    for part in ("recording", "waveform"):
        assert (await place.get(call_id, part))[::2] == (404, b'{"error":"Recording not found"}')
    status, _, body = await place.get(call_id, "export")
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert (status, "recording.wav" in archive.namelist()) == (200, False)


async def test_a_transfer_that_breaks_off_closes_the_connection(place: Place, tmp_path: Path) -> None:
    call_id = await place.stored_call()
    long = tmp_path / "long.wav"
    await asyncio.to_thread(long.write_bytes, bytes(30_000_000))
    await place.store.put(await place.key(call_id), long)
    url = f"{place.server.client.origin}/v1/calls/{call_id}/recording"
    headers = {"Authorization": f"Bearer {place.server.client.key}"}
    with pytest.raises(aiohttp.ClientPayloadError):
        async with place.session.get(url, headers=headers) as response:
            assert response.content_length == 30_000_000
            await response.content.readexactly(1_000_000)
            await place.relay.cut()
            await response.read()
    await place.relay.restore()
    assert len((await place.get(call_id))[2]) == 30_000_000
