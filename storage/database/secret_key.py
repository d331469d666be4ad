"""Secret key of the database: verifies that the key file is the one that its secrets were encrypted with."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from config import secrets
from config.errors import StartupError
from config.secrets import Secrets, SecretUnreadable
from storage import tables
from storage.database.database import Database

_NAME: Final = "secret_key_proof"
_TEXT: Final = "trunkline"


def verify(conn: sa.Connection, secrets: Secrets) -> None:
    """Verify the key with the stored proof, which the first start stores. Raises `StartupError` when it does not match,
    because every stored secret would be unreadable."""
    if not matches_proof(conn, secrets):
        raise StartupError(
            "secret_key_file is not the one that the stored secrets were encrypted with: put the old file back, "
            "or its key on a further line of the new one"
        )
    if _token(conn) is None:
        conn.execute(sa.insert(tables.facts).values(name=_NAME, value=secrets.encrypt(_TEXT)))


async def load(database: Database, path: Path) -> Secrets:
    """Returns the key of this database; creates it when neither the file nor a proof exists. Raises `StartupError` when
    the file is missing or does not match the proof."""
    encrypted = await database.read(_token)
    if encrypted is not None and not await asyncio.to_thread(path.exists):
        raise StartupError(
            f"secret_key_file {path} is missing, and the database holds secrets that were encrypted with it: put the "
            "file back, from a copy or out of a backup (`trunkline restore BACKUP --data-dir FOLDER` unpacks one)"
        )
    key = await asyncio.to_thread(secrets.load_or_create, path)
    await (database.write if encrypted is None else database.read)(lambda conn: verify(conn, key))
    return key


def matches_proof(conn: sa.Connection, secrets: Secrets) -> bool:
    """True if the key matches the stored proof, or if there is no proof."""
    token = _token(conn)
    try:
        return token is None or secrets.decrypt(token) == _TEXT
    except SecretUnreadable:
        return False


def _token(conn: sa.Connection) -> str | None:
    proof = conn.execute(sa.select(tables.facts.c.value).where(tables.facts.c.name == _NAME))
    token: str | None = proof.scalar_one_or_none()
    return token
