"""One server and one furnished world for each module of contract tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster

from tests.conftest import blocking_fails
from tests.contract.server import Server, serve
from tests.contract.world import World, world_of


@pytest.fixture(scope="module", autouse=True)
def blocking_the_loop_fails() -> Iterator[BlockBuster]:
    """As for every test, but set up once for a module's hundreds of cases."""
    with blocking_fails() as blockbuster:
        yield blockbuster


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Shared by a module's tests: each keeps to resources of its own, or counts only what it changes."""
    with serve(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def world(server: Server) -> World:
    return world_of(server)
