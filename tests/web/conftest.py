"""Browsers for the tests of the dashboard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.conftest import Api, StartApi, api, migrated, start_api
from tests.peers.chromium import PROGRAM
from tests.web.dashboard import Dashboard, dashboard

__all__ = ["StartApi", "api", "migrated", "start_api"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not Path(PROGRAM).exists():
        reason = "the system's archive has no chromium-headless-shell (Ubuntu has none)"
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


def address(api: Api) -> str:
    """Returns the server's address without a path."""
    return str(api.client.make_url("/")).rstrip("/")


@pytest.fixture
async def signed_in(api: Api) -> AsyncIterator[Dashboard]:
    """A browser of an owner of `api`'s organization."""
    async with dashboard(address(api), api.key) as opened:
        yield opened
