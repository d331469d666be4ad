"""A real S3-compatible server for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.peers.seaweedfs import S3Server


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def s3_server() -> AsyncIterator[S3Server]:
    """The server of this package."""
    async with S3Server() as server:
        yield server
