"""Cache of API keys, emptied by every change of the database."""

from __future__ import annotations

from hashlib import sha256

from storage.accounts import api_keys
from storage.accounts.api_keys import ApiKey
from storage.database.database import Database


class ApiKeyCache:
    """The keys that were found since the last change of the database. A change of any row, by any process, empties the
    cache, so that a revoked key stops working at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._change_number: int | None = None
        self._keys: dict[bytes, ApiKey] = {}

    async def find(self, key: str) -> ApiKey | None:
        """Returns the API key with this text; None if it is unknown or revoked. Raises `StorageUnavailable`."""
        change_number = self._database.change_number()
        if change_number is None or change_number != self._change_number:
            self._keys.clear()
            self._change_number = change_number
        digest = sha256(key.encode("utf-8", "surrogateescape")).digest()
        cached = self._keys.get(digest)
        if cached is not None:
            return cached
        found = await self._database.read(lambda conn: api_keys.find(conn, key))
        if found is not None and change_number is not None and change_number == self._change_number:
            self._keys[digest] = found  # read at this change or a later one; a later one empties the cache
        return found
