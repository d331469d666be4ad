"""What tests of several files have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.calls.archive import Archive, open_archive


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    async with open_archive(tmp_path) as here:
        yield here
