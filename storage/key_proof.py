"""Proof that the secret key file is the one that this database's secrets were encrypted with."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from config.errors import StartupError
from config.secrets import Secrets, SecretUnreadable
from storage import tables

_NAME: Final = "secret_key_proof"
_TEXT: Final = "trunkline"


def check(conn: sa.Connection, secrets: Secrets) -> None:
    """Compare the key with the stored proof, which the first start writes. `StartupError` when it does not fit: going
    on would make every stored secret unreadable one by one."""
    if not fits(conn, secrets):
        raise StartupError(
            "secret_key_file is not the one that the stored secrets were encrypted with: put the old file back, "
            "or its key on a further line of the new one"
        )
    if _token(conn) is None:
        conn.execute(sa.insert(tables.facts).values(name=_NAME, value=secrets.encrypt(_TEXT)))


def fits(conn: sa.Connection, secrets: Secrets) -> bool:
    """Whether the key is that of the stored proof; any key is, as long as there is no proof."""
    token = _token(conn)
    try:
        return token is None or secrets.decrypt(token) == _TEXT
    except SecretUnreadable:
        return False


def _token(conn: sa.Connection) -> str | None:
    proof = conn.execute(sa.select(tables.facts.c.value).where(tables.facts.c.name == _NAME))
    token: str | None = proof.scalar_one_or_none()
    return token
