"""Fixtures of several packages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from config.secrets import Secrets
from storage.database.database import Database
from tests import database_template
from tests.calls.knowledge.ingestion_harness import Archive, open_archive
from tests.calls.webhooks.outbox_harness import Receiver, listening


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    async with open_archive(tmp_path) as here:
        yield here


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with listening(Receiver()) as here:
        yield here


@pytest.fixture
def secrets() -> Secrets:
    return Secrets([Fernet.generate_key()])


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await database_template.open_copy(tmp_path)
    yield database
    await database.close()
