"""The storage of a server: its database, shared with other nodes or its own, and the files of its data directory."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

from api.services import NodeIdentity
from config.secrets import Secrets
from config.settings import Settings
from storage.background_sounds import presets as preset_sounds
from storage.database.database import Database
from storage.nodes.membership import Membership
from storage.recording_store.recording_files import RecordingFiles
from trunkline.backup import restore_journal
from trunkline.wiring.storage.database import join_nodes, node_identity, open_server_database
from trunkline.wiring.storage.database_wait import DatabaseWait
from trunkline.wiring.storage.recordings import open_recordings


@dataclass(frozen=True)
class ServerStorage:
    """The open storage. `node`: None for the only server of a database."""

    database: Database
    secrets: Secrets
    recording_files: RecordingFiles
    membership: Membership
    node: NodeIdentity | None
    installing_sounds: asyncio.Task[None]
    """Installs the background sounds that come with the server, which the API lists."""


async def open_server_storage(settings: Settings, wait: DatabaseWait, stack: AsyncExitStack) -> ServerStorage:
    """Open it until `stack` is closed. `wait`: what this task does while the database is away. Raises `StartupError`,
    and what `wait` raises."""
    restore_journal.resume(settings.data_dir)
    recording_files = await open_recordings(settings)
    database, secrets = await open_server_database(settings, stack, wait)
    membership = await join_nodes(settings, database, stack)
    node = await node_identity(settings, membership)
    sounds = asyncio.create_task(preset_sounds.install_presets(database, settings.data_dir), name="preset sounds")
    stack.push_async_callback(asyncio.wait, (sounds,))
    return ServerStorage(database, secrets, recording_files, membership, node, sounds)
