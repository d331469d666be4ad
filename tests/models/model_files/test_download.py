"""Downloads are complete and verified whatever the server does, and resume after interruptions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from config.errors import ModelFileError
from models.model_files.download import MIN_FREE_BYTES, DownloadedFile, DownloadRequest, download_file, download_session
from tests.models.model_files.file_server import FileServer, file_server, sha256
from tests.models.model_files.tiny_model_files import contents
from tests.trunkline.small_disk import filled, tiny_disk

CONTENT = random.Random(1).randbytes(3_000_000)
"""Of what is on its way when a connection ends, the client may lose the last few hundred thousand bytes."""
OTHER = random.Random(2).randbytes(3_000_000)
SUM = sha256(CONTENT)


@pytest.fixture
async def server() -> AsyncIterator[FileServer]:
    async with file_server(CONTENT) as server:
        yield server


async def download(
    server: FileServer,
    part: Path,
    *,
    path: str = "/file",
    size: int | None = None,
    sum_: str | None = None,
    pauses: int = 2,
    keep_free: int = 0,
) -> DownloadedFile:
    async with download_session() as client:
        wanted = DownloadRequest(f"{server.origin}{path}", size, sum_)
        return await download_file(client, wanted, part, pauses_s=[0.0] * pauses, keep_free=keep_free)


def expect_start(server: FileServer) -> list[int]:
    """Asserts the first byte that each request asked for."""
    return [int((asked or "bytes=0-").removeprefix("bytes=").removesuffix("-")) for _, asked, _ in server.asked]


async def test_a_download_is_complete_and_reports_progress(server: FileServer, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    async with download_session() as client:
        wanted = DownloadRequest(f"{server.origin}/file", len(CONTENT), SUM)
        fetched = await download_file(client, wanted, tmp_path / "file", lambda *at: told.append(at), keep_free=0)
    assert fetched == DownloadedFile(len(CONTENT), SUM, announced=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert told[0] == (0, len(CONTENT)) and told[-1] == (len(CONTENT), len(CONTENT)) and told == sorted(told)


@pytest.mark.parametrize("known", [True, False])
async def test_an_interrupted_download_resumes(server: FileServer, tmp_path: Path, known: bool) -> None:
    server.breaks = [1_200_000, 0, 900_000]
    await download(server, tmp_path / "file", sum_=SUM if known else None)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked[0][1] is None and len(server.asked) == 4
    first, second, third = expect_start(server)[1:]
    assert 900_000 < first == second <= 1_200_000 and second + 600_000 < third <= second + 900_000
    assert {tag for _, _, tag in server.asked[1:]} == {f'"{SUM[:16]}"'}


async def test_a_download_resumes_in_another_process(server: FileServer, tmp_path: Path) -> None:
    server.breaks = [1_000_000, 0, 0]
    with pytest.raises(ModelFileError, match=r"try again later, it resumes after \d+ bytes$"):
        await download(server, tmp_path / "file", sum_=SUM, pauses=1)
    server.asked.clear()
    there = (tmp_path / "file").stat().st_size
    await download(server, tmp_path / "file", sum_=SUM)
    assert expect_start(server) == [there] and there > 700_000
    assert (tmp_path / "file").read_bytes() == CONTENT


async def test_a_complete_part_is_not_requested_again(server: FileServer, tmp_path: Path) -> None:
    first = await download(server, tmp_path / "file")
    server.asked.clear()
    assert await download(server, tmp_path / "file", size=len(CONTENT), sum_=SUM) == first
    assert server.asked == []


async def test_without_range_support_the_download_restarts(server: FileServer, tmp_path: Path) -> None:
    server.breaks, server.ignores_range = [1_000_000], True
    assert (await download(server, tmp_path / "file", sum_=SUM)).sha256 == SUM
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("tag", ["content", None])
async def test_parts_of_a_changed_file_are_never_mixed(server: FileServer, tmp_path: Path, tag: str | None) -> None:
    """With an ETag the server detects it; without one the download restarts."""
    server.breaks, server.tag = [1_000_000, 0, 0], tag
    with pytest.raises(ModelFileError):
        await download(server, tmp_path / "file", pauses=1)
    server.content = OTHER
    assert (await download(server, tmp_path / "file")).sha256 == sha256(OTHER)
    assert (tmp_path / "file").read_bytes() == OTHER


async def test_a_resumed_part_with_a_wrong_hash_is_downloaded_again(server: FileServer, tmp_path: Path) -> None:
    server.content, server.tag, server.breaks = OTHER, None, [1_000_000, 0, 0]
    with pytest.raises(ModelFileError, match="cannot be downloaded"):
        await download(server, tmp_path / "file", sum_=SUM, pauses=1)
    server.content = CONTENT
    server.asked.clear()
    assert (await download(server, tmp_path / "file", sum_=SUM)).sha256 == SUM
    first, second = expect_start(server)
    assert first > 0 and second == 0


async def test_a_file_that_became_shorter_is_downloaded_from_its_beginning(server: FileServer, tmp_path: Path) -> None:
    server.tag, server.breaks = None, [2_000_000, 0, 0]
    short = CONTENT[:500_000]
    with pytest.raises(ModelFileError, match="cannot be downloaded"):
        await download(server, tmp_path / "file", sum_=sha256(short), pauses=1)
    server.content = short
    server.asked.clear()
    assert (await download(server, tmp_path / "file", sum_=sha256(short))).size == len(short)
    first, second = expect_start(server)
    assert first > len(short) and second == 0


async def test_a_file_with_a_wrong_hash_is_discarded(server: FileServer, tmp_path: Path) -> None:
    server.content = OTHER
    with pytest.raises(ModelFileError, match=rf"SHA-256 is {sha256(OTHER)} instead of {SUM}: it was discarded"):
        await download(server, tmp_path / "file", sum_=SUM)
    assert contents(tmp_path) == {} and len(server.asked) == 1


async def test_a_file_of_another_size_is_not_downloaded(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="has 3000000 bytes and should have 2999999: nothing was downloaded"):
        await download(server, tmp_path / "file", size=2_999_999, sum_=SUM)
    assert contents(tmp_path) == {}


async def test_an_endless_body_is_cut_off(server: FileServer, tmp_path: Path) -> None:
    server.chunked = True
    with pytest.raises(ModelFileError, match="is longer than 1000 bytes"):
        await download(server, tmp_path / "file", size=1000, sum_=SUM)
    assert not (tmp_path / "file").exists() or (tmp_path / "file").stat().st_size <= 1000


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_that_always_ends_early_raises(server: FileServer, tmp_path: Path, chunked: bool) -> None:
    """With a Content-Length that is too long, or without one and too short: retries are limited."""
    server.chunked = chunked
    if not chunked:
        server.headers["Content-Length"], server.breaks = "3000100", [len(CONTENT)] * 20
    with pytest.raises(ModelFileError, match=r"cannot be downloaded: .*: try again later"):
        await download(server, tmp_path / "file", size=3_000_100, sum_=SUM)
    assert len(server.asked) <= 8


async def test_a_busy_server_is_retried_and_a_missing_file_is_not(server: FileServer, tmp_path: Path) -> None:
    server.statuses = [503, 429]
    assert (await download(server, tmp_path / "file")).sha256 == SUM
    for status, words in (
        (404, "no longer exists"),
        (403, "download it by hand"),
        (418, "cannot be downloaded: HTTP 418"),
    ):
        server.statuses, server.asked = [status], []
        with pytest.raises(ModelFileError, match=words):
            await download(server, tmp_path / str(status))
        assert len(server.asked) == 1


async def test_an_unreachable_host_raises(server: FileServer, tmp_path: Path) -> None:
    async with download_session() as client:
        wanted = DownloadRequest("http://127.0.0.1:1/file")
        with pytest.raises(ModelFileError, match=r"127.0.0.1:1/file cannot be downloaded: .*: try again later, or get"):
            await download_file(client, wanted, tmp_path / "file", pauses_s=(), keep_free=0)


async def test_a_silent_server_times_out(server: FileServer, tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc")

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(sock_read=0.05)) as client:
        with pytest.raises(ModelFileError, match=r"the server stopped sending: .* it resumes after 3 bytes"):
            wanted = DownloadRequest(f"http://127.0.0.1:{port}/file", sha256=SUM)
            await download_file(client, wanted, tmp_path / "file", pauses_s=(), keep_free=0)
    listener.close()


async def test_redirects_are_followed_and_headers_of_the_first_host_count(server: FileServer, tmp_path: Path) -> None:
    server.redirects = {"/model": "/moved", "/moved": f"{server.origin}/store?signature=a%2Fb%3D"}
    server.linked = {"X-Linked-ETag": f'"{SUM}"', "X-Linked-Size": str(len(CONTENT))}
    assert await download(server, tmp_path / "file", path="/model") == DownloadedFile(len(CONTENT), SUM, announced=True)
    server.content = OTHER
    with pytest.raises(ModelFileError, match="is not what it should be"):
        await download(server, tmp_path / "other", path="/model")


async def test_headers_of_another_host_do_not_count(server: FileServer, tmp_path: Path) -> None:
    async with file_server(OTHER) as store:
        store.headers = {"X-Linked-ETag": f'"{sha256(OTHER)}"'}
        server.redirects = {"/model": f"{store.origin}/store"}
        assert await download(server, tmp_path / "file", path="/model") == DownloadedFile(
            len(OTHER), sha256(OTHER), announced=False
        )


async def test_a_known_file_that_its_host_replaced_is_not_downloaded(server: FileServer, tmp_path: Path) -> None:
    server.redirects, server.linked = {"/model": "/store"}, {"X-Linked-ETag": f'"{sha256(OTHER)}"'}
    with pytest.raises(ModelFileError, match=r"has changed: .* nothing was downloaded"):
        await download(server, tmp_path / "file", path="/model", sum_=SUM)
    server.linked = {"X-Linked-Size": "12"}
    with pytest.raises(ModelFileError, match="has 12 bytes there, and should have 3000000: nothing was downloaded"):
        await download(server, tmp_path / "file", path="/model", size=len(CONTENT), sum_=SUM)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("target", ["http://192.0.2.1/file", "ftp://127.0.0.1/file", "file:///etc/passwd"])
async def test_redirects_to_plain_http_raise(server: FileServer, tmp_path: Path, target: str) -> None:
    server.redirects = {"/model": target}
    with pytest.raises(ModelFileError, match="which is not safe: nothing was downloaded"):
        await download(server, tmp_path / "file", path="/model", sum_=SUM)


async def test_endless_redirects_raise(server: FileServer, tmp_path: Path) -> None:
    server.redirects = {"/model": "/model"}
    with pytest.raises(ModelFileError, match="has too many redirects"):
        await download(server, tmp_path / "file", path="/model")
    assert len(server.asked) == 6


async def test_a_content_encoding_raises(server: FileServer, tmp_path: Path) -> None:
    server.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(ModelFileError, match="has a content encoding"):
        await download(server, tmp_path / "file")


async def test_no_download_starts_without_disk_space(server: FileServer, tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk", "4m"):
        with pytest.raises(ModelFileError, match=r"has \d MiB free, and 259 MiB are needed: free some"):
            await download(server, tmp_path / "disk/file", sum_=SUM, keep_free=MIN_FREE_BYTES)
        assert not (tmp_path / "disk/file").exists()


async def test_a_full_disk_keeps_the_received_bytes(server: FileServer, tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk", "4m"):
        part = tmp_path / "disk/file"
        server.breaks = [2_000_000, 0, 0]
        with pytest.raises(ModelFileError):
            await download(server, part, sum_=SUM, pauses=1)
        there = part.stat().st_size
        with filled(part.parent), pytest.raises(OSError, match="No space left"):
            await download(server, part, sum_=SUM, keep_free=-len(CONTENT))  # as if there had been room when it began
        assert part.stat().st_size >= there > 1_000_000
        assert (await download(server, part, sum_=SUM)).sha256 == SUM
