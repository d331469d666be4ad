"""SeaweedFS, an S3-compatible server, as PyPI packages it, and a relay in front of it that a test can cut."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from storage.recording_store.s3_store import S3Bucket
from tests.peers.ports import free_port
from tests.peers.process import Process

WEED: Final = str(Path(sys.executable).with_name("weed"))
BUCKET: Final = "calls"
ACCESS_KEY: Final = "TESTACCESSKEY"
SECRET_KEY: Final = "test-secret-key"
_PORTS: Final = ("master", "volume", "filer", "s3", "admin")


class S3Server(Process):
    """A server with the bucket `BUCKET`, whose only user has `ACCESS_KEY` and `SECRET_KEY`."""

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()

    async def __aenter__(self) -> S3Server:
        await self.run()
        return self

    async def run(self) -> None:
        """Start the server, with the objects that it had, and wait until it answers."""
        credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
        user = {"name": "tests", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
        config = self.folder / "s3.json"
        await asyncio.to_thread(config.write_text, json.dumps({"identities": [user]}))
        ports = [f"-{name}.port={self.port if name == 's3' else free_port()}" for name in _PORTS]
        ports += [f"-{name}.port.grpc={free_port()}" for name in _PORTS]
        await self.start(
            WEED, "mini", f"-dir={self.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false",
            "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={config}", f"-bucket={BUCKET}",
            "-s3.autoCreateBucket=false", *ports,
        )  # fmt: skip
        async with asyncio.timeout(30):
            while not await self._answers():
                assert self.child.returncode is None, self.output()
                await asyncio.sleep(0.05)  # there is no event but the open port

    async def close(self) -> None:
        """Kill the process, which takes its time to end by itself, and remove its folder."""
        if self._child is not None and self._child.returncode is None:
            self._child.kill()
            await self._child.wait()
        await super().close()

    async def _answers(self) -> bool:
        """True once the server lists its bucket; 403 means that it knows the bucket and not who asks."""
        if "All enabled components are running" not in await asyncio.to_thread(self.output):
            return False
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(f"HEAD /{BUCKET} HTTP/1.0\r\n\r\n".encode())
            answer = await reader.readline()
            writer.close()
            return b" 403 " in answer
        return False


class Relay:
    """Passes connections on to a port of this machine. `cut` closes all, and refuses new ones; `hold` accepts them and
    passes nothing on."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self.port = free_port()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.passed_bytes = 0
        """Bytes to the server so far."""
        self.cut_after_bytes: int | None = None
        """Connections are closed once this many bytes were passed to the server."""
        self.hold_at: bytes | None = None
        """The relay holds, and sets `is_holding`, once data to the server begins with this."""
        self.is_holding = asyncio.Event()

    async def __aenter__(self) -> Relay:
        await self.restore()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def restore(self) -> None:
        """Pass everything on again."""
        self._flows.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._flows.set()
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hold(self) -> None:
        """Pass nothing on, in connections of now and of later."""
        self._flows.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._flows.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, far_writer, counted=True))
                group.create_task(self._pass_on(far_reader, writer, counted=False))
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool) -> None:
        try:
            while data := await reader.read(1 << 16):
                if counted and self.hold_at is not None and data.startswith(self.hold_at):
                    self.hold()
                    self.is_holding.set()
                await self._flows.wait()
                if counted:
                    self.passed_bytes += len(data)
                    if self.cut_after_bytes is not None and self.passed_bytes > self.cut_after_bytes:
                        raise OSError("cut")
                writer.write(data)
                await writer.drain()
        finally:
            writer.transport.abort()


def bucket_at(port: int, prefix: str = "", **changes: Any) -> S3Bucket:
    """The bucket of the server at a port."""
    fields: Mapping[str, Any] = {
        "bucket": BUCKET, "prefix": prefix, "endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1",
        "access_key": ACCESS_KEY, "secret_key": SECRET_KEY,
    }  # fmt: skip
    return S3Bucket(**{**fields, **changes})
