"""The store of recordings in `trunkline check` and at the start of a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from config.settings import Settings
from storage.recording_store.folder_store import MARKER
from tests.peers.ports import free_port
from tests.peers.seaweedfs import Relay, S3Server
from tests.trunkline.recordings.conftest import recordings_at
from tests.trunkline.server_in_process import LocalServer, open_local_server
from trunkline.check import check, recordings

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def s3_server() -> AsyncIterator[S3Server]:
    async with S3Server() as server:
        yield server


async def result(folder: Path, table: dict[str, Any], **more: Any) -> str:
    """The state and the line of the check."""
    settings = Settings(data_dir=folder / "data").with_changes({"recordings": table, **more})
    [(name, work)] = recordings.checks(settings)
    [found] = [each async for each in check._run([(name, work)], settings, lambda *_: None)]
    [line] = found.lines
    return f"{found.state} {line}"


async def test_the_store_is_written_read_and_deleted(s3_server: S3Server, tmp_path: Path) -> None:
    table = recordings_at(tmp_path, s3_server.port, "checked")
    server = f"s3://calls/checked at http://127.0.0.1:{s3_server.port}"
    assert await result(tmp_path, table) == f"ok {server}: an object was written, read and deleted"
    expected = f"ok {server} can be read; a standby server writes nothing to it"
    assert await result(tmp_path, table, standby=True) == expected


async def test_what_is_wrong_is_named_with_its_remedy(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = recordings_at(tmp_path, s3_server.port, "checked")
    server = f"s3://calls/checked at http://127.0.0.1:{s3_server.port}"
    await asyncio.to_thread((tmp_path / "secret.key").write_text, "wrong-secret\n")
    assert await result(tmp_path, table) == (
        f"FAIL {server} cannot be written: 403 Forbidden, SignatureDoesNotMatch: correct recordings.secret_key_file, "
        "and see that the clock is right"
    )
    await asyncio.to_thread((tmp_path / "access.key").write_text, "UNKNOWN\n")
    assert "InvalidAccessKeyId: correct recordings.access_key_file" in await result(tmp_path, table)
    await asyncio.to_thread((tmp_path / "access.key").unlink)
    line = await result(tmp_path, table)
    assert line.startswith(f"FAIL recordings.access_key_file {tmp_path}/access.key cannot be read: No such file")
    table = recordings_at(tmp_path, s3_server.port, "", url="s3://another-bucket")
    assert "NoSuchBucket: create the bucket" in await result(tmp_path, table)
    closed = free_port()
    line = await result(tmp_path, recordings_at(tmp_path, closed, "x"))
    assert f"at http://127.0.0.1:{closed} cannot be written: it cannot be connected to: is the server up" in line
    monkeypatch.setattr(recordings, "TIMEOUT_S", 0.3)
    async with Relay(s3_server.port) as relay:
        relay.hold()
        line = await result(tmp_path, recordings_at(tmp_path, relay.port, "x"))
    assert "cannot be written: it does not answer in time: is the server up" in line


async def test_a_shared_folder_is_checked_too(tmp_path: Path) -> None:
    table = {"url": f"file://{tmp_path}/shared"}
    assert await result(tmp_path, table) == (
        f"FAIL {tmp_path}/shared cannot be written: the folder has no file {MARKER}, which a start of the server "
        "makes: it is not mounted: create the folder, or mount it"
    )
    await asyncio.to_thread((tmp_path / "shared").mkdir)
    assert await result(tmp_path, table) == f"ok {tmp_path}/shared: an object was written, read and deleted"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server_with_wrong_keys(
    s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LocalServer]:
    folder = tmp_path_factory.mktemp("wrong")
    table = recordings_at(folder, s3_server.port, "x")
    (folder / "secret.key").write_text("wrong-secret\n")
    async with asyncio.timeout(30), open_local_server(folder / "data", recordings=table) as server:
        yield server


async def test_a_server_starts_with_wrong_keys_and_says_so_once(server_with_wrong_keys: LocalServer) -> None:
    away = await server_with_wrong_keys.log.event("recordings.store_away")
    assert (away["level"], away["cause"]) == ("error", "403 Forbidden, SignatureDoesNotMatch")
    assert len(server_with_wrong_keys.log.all("recordings.store_away")) == 1
