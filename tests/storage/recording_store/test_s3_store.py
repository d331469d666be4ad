"""Faults of a bucket and of its server."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from config.errors import StartupError
from storage.recording_store import s3_store
from storage.recording_store.object_store import StoreUnavailable
from storage.recording_store.s3_store import S3Bucket, S3RecordingStore
from tests.peers.certificate_authority import Authority
from tests.peers.seaweedfs import ACCESS_KEY, SECRET_KEY, Relay, S3Server, bucket_at
from tests.peers.tls_relay import TlsRelay

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def causes(bucket: S3Bucket, tmp_path: Path) -> set[str]:
    """The causes of the failures of all operations."""
    store, path, found = S3RecordingStore(bucket), tmp_path / "a", set()
    await asyncio.to_thread(path.write_bytes, b"x")
    for work in (store.put("k", path), store.size("k"), store.read("k", 0, 1), store.remove("k")):
        with pytest.raises(StoreUnavailable) as failure:
            await work
        found.add(failure.value.cause)
        for secret in (ACCESS_KEY, SECRET_KEY, bucket.access_key, bucket.secret_key):
            assert secret not in f"{failure.value!r} {failure.value.cause} {failure.value.__cause__!r}"
    return found


async def test_wrong_keys_are_named(s3_server: S3Server, tmp_path: Path) -> None:
    wrong_secret = await causes(bucket_at(s3_server.port, secret_key="wrong-secret"), tmp_path)
    assert wrong_secret == {"403 Forbidden, SignatureDoesNotMatch"}
    unknown = await causes(bucket_at(s3_server.port, access_key="UNKNOWNKEY"), tmp_path)
    assert unknown == {"403 Forbidden, InvalidAccessKeyId"}


async def test_no_server_is_an_outage(tmp_path: Path) -> None:
    assert await causes(bucket_at(1), tmp_path) == {"it cannot be connected to"}


async def test_a_server_that_does_not_answer_is_an_outage_within_seconds(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_store, "REPLY_S", 0.3)
    async with Relay(s3_server.port) as relay:
        relay.hold()
        store = S3RecordingStore(bucket_at(relay.port))
        began = time.monotonic()
        for work in (store.size("k"), store.read("k", 0, 1), store.remove("k")):
            with pytest.raises(StoreUnavailable, match="cannot be reached") as failure:
                await work
            assert failure.value.cause == "it does not answer in time"
        assert time.monotonic() - began < 3


async def test_an_upload_that_is_cut_leaves_no_object_and_can_be_repeated(s3_server: S3Server, tmp_path: Path) -> None:
    key, content, path = f"{uuid4()}.wav", bytes(20_000_000), tmp_path / "long.wav"
    await asyncio.to_thread(path.write_bytes, content)
    async with Relay(s3_server.port) as relay:
        store = S3RecordingStore(bucket_at(relay.port))
        relay.cut_after_bytes = 12_000_000
        with pytest.raises(StoreUnavailable):
            await store.put(key, path)
        relay.cut_after_bytes = None
        assert await store.size(key) is None
        await store.put(key, path)
        assert await store.size(key) == len(content)


async def test_a_transfer_that_breaks_off_is_an_outage(s3_server: S3Server, tmp_path: Path) -> None:
    key, path = f"{uuid4()}.wav", tmp_path / "long.wav"
    await asyncio.to_thread(path.write_bytes, bytes(20_000_000))
    async with Relay(s3_server.port) as relay:
        store = S3RecordingStore(bucket_at(relay.port))
        await store.put(key, path)
        chunks = await store.read(key, 0, 20_000_000)
        assert chunks is not None
        with pytest.raises(StoreUnavailable):
            async for _ in chunks:
                await relay.cut()


async def test_keys_of_the_environment_are_not_used(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "of-another-program")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    path = tmp_path / "a"
    await asyncio.to_thread(path.write_bytes, b"x")
    store = S3RecordingStore(bucket_at(s3_server.port))
    await store.put("a.wav", path)
    assert await store.size("a.wav") == 1


async def test_without_its_package_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(StartupError, match=r"needs obstore: .*scripts/venv\.sh cluster"):
        S3RecordingStore(bucket_at(1))


async def test_a_server_with_a_certificate_of_a_private_authority(s3_server: S3Server, tmp_path: Path) -> None:
    files = await asyncio.to_thread(lambda: Authority(tmp_path / "ca").files("127.0.0.1"))
    assert files.authorities is not None
    path, ca = tmp_path / "a", await asyncio.to_thread(files.authorities.read_bytes)
    await asyncio.to_thread(path.write_bytes, b"x")
    async with TlsRelay(files, peer_port=s3_server.port) as relay:
        endpoint = f"https://127.0.0.1:{relay.port}"
        untrusted = bucket_at(0, endpoint=endpoint)
        assert await causes(untrusted, tmp_path) == {"its certificate is not trusted"}
        store = S3RecordingStore(bucket_at(0, endpoint=endpoint, ca=ca))
        await store.put("tls.wav", path)
        assert await store.size("tls.wav") == 1
