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
    proof = conn.execute(sa.select(tables.facts.c.value).where(tables.facts.c.name == _NAME))
    token = proof.scalar_one_or_none()
    if token is None:
        conn.execute(sa.insert(tables.facts).values(name=_NAME, value=secrets.encrypt(_TEXT)))
        return
    try:
        secrets.decrypt(token)
    except SecretUnreadable as error:
        raise StartupError(
            "secret_key_file is not the one that the stored secrets were encrypted with: put the old file back, "
            "or its key on a further line of the new one"
        ) from error
