"""The identity of a server among several nodes, by the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import StartupError
from config.settings import Settings
from config.settings_tables import NodeSettings
from storage.database.database import Database
from storage.nodes.cluster_membership import ClusterMembership
from storage.nodes.membership import NodeLoad
from storage.nodes.single_node import SingleNode
from trunkline.wiring.storage.database import node_identity


def _settings(folder: Path, secret: str) -> Settings:
    file = folder / "node.secret"
    file.write_text(secret)
    file.chmod(0o600)
    return Settings(data_dir=folder, node=NodeSettings(name="a", secret_file=file))


def _membership(folder: Path) -> ClusterMembership:
    return ClusterMembership(Database(f"sqlite+aiosqlite:///{folder}/unused.db"), "a", None, "1")


async def test_a_secret_of_fewer_than_32_characters_stops_the_start(tmp_path: Path) -> None:
    for secret in ("x" * 31, "\n"):
        with pytest.raises(StartupError, match="secret_file"):
            await node_identity(_settings(tmp_path, secret), _membership(tmp_path))
    identity = await node_identity(_settings(tmp_path, "x" * 32 + "\n"), _membership(tmp_path))
    assert identity is not None
    assert identity.secret == b"x" * 32


async def test_the_only_server_has_no_identity_and_lists_itself_with_its_present_load(tmp_path: Path) -> None:
    membership = SingleNode("a", None, "1")
    assert await node_identity(_settings(tmp_path, ""), membership) is None
    membership.report = lambda: NodeLoad("up", 3, 40)
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/trunkline.db")
    await database.open()
    try:
        (node,) = await database.read(membership.nodes)
    finally:
        await database.close()
    assert (node.name, node.state, node.calls, node.capacity) == ("a", "up", 3, 40)
