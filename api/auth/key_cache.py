"""A cache of API keys that every change of the database empties."""

from __future__ import annotations

from hashlib import sha256

from storage.accounts import api_keys
from storage.accounts.api_keys import ApiKey
from storage.database.database import Database


class ApiKeyCache:
    """Keys found since the database last changed. A change of any row, by any process, empties the cache, so that a
    revoked key stops working at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._as_of: int | None = None
        self._found: dict[bytes, ApiKey] = {}

    async def find(self, key: str) -> ApiKey | None:
        """Returns the key of a request, None when it is unknown or revoked. Raises `StorageUnavailable`."""
        as_of = self._database.change_number()
        if as_of is None or as_of != self._as_of:
            self._found.clear()
            self._as_of = as_of
        digest = sha256(key.encode("utf-8", "surrogateescape")).digest()
        known = self._found.get(digest)
        if known is not None:
            return known
        found = await self._database.read(lambda conn: api_keys.find(conn, key))
        if found is not None and as_of is not None and as_of == self._as_of:
            self._found[digest] = found  # read at `as_of` or later, and forgotten when it was later
        return found
