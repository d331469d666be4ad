"""A real S3-compatible server for the tests of this folder, and settings that name it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from tests.peers.seaweedfs import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def s3_server() -> AsyncIterator[S3Server]:
    """The server of this package."""
    async with S3Server() as server:
        yield server


def recordings_at(folder: Path, port: int, prefix: str, **changes: Any) -> dict[str, Any]:
    """The table `[recordings]` for the bucket of a server at a port; the keys are in files in the folder. Blocks."""
    for name, key in (("access.key", ACCESS_KEY), ("secret.key", SECRET_KEY)):
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(f"{key}\n")
    return {
        "url": f"s3://{BUCKET}/{prefix}",
        "endpoint": f"http://127.0.0.1:{port}",
        "access_key_file": str(folder / "access.key"),
        "secret_key_file": str(folder / "secret.key"),
        **changes,
    }
