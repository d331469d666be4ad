"""The server's database: locked, migrated, and opened together with the secret key of its encrypted values."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from config.secrets import Secrets
from config.settings import Settings
from storage.database import file_permissions, secret_key, server_lock
from storage.database.database import Database
from storage.database.sqlite import lost_database


async def open_server_database(settings: Settings, stack: AsyncExitStack) -> tuple[Database, Secrets]:
    """Returns the database, locked against other servers, and its secret key. The database is opened first, because it
    decides whether a missing key may be created. Raises `StartupError`."""
    database = Database(settings.database_url)
    stack.enter_context(server_lock.lock_database(database.path))
    paths = settings.data_dir, database.path, settings.secret_key_path
    await asyncio.to_thread(file_permissions.make_private, *paths)
    await asyncio.to_thread(lost_database.check_not_lost, *paths)
    stack.push_async_callback(database.close)
    await database.open()
    return database, await secret_key.load(database, settings.secret_key_path)
