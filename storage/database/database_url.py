"""URLs of databases, in SQLAlchemy's form."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from config.errors import StartupError

SQLITE: Final = "sqlite+aiosqlite"
POSTGRESQL: Final = "postgresql+psycopg"


def parse(url: str, what: str = "setting database.url") -> sa.URL:
    """Returns the parsed URL of a SQLite file or of a PostgreSQL database. Raises `StartupError` for any other, which
    calls the URL `what` and does not show it, because it may have a password."""
    try:
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        parsed = None
    if parsed is not None and parsed.drivername == POSTGRESQL and parsed.database:
        if "@" in (parsed.host or ""):
            raise StartupError(f"bad {what}: write a @ in the user's name or password as %40")
        return parsed
    if parsed is None or parsed.drivername != SQLITE or parsed.database in (None, "", ":memory:"):
        raise StartupError(
            f"bad {what}: it takes {SQLITE}:///path/to/file or {POSTGRESQL}://user:password@host/database"
        )
    return parsed


def shown(url: sa.URL) -> str:
    """Returns the URL for messages: the path of a file; without user, password and options where it is a server's."""
    if url.drivername != POSTGRESQL:
        return str(url.database)
    host = url.host or url.query.get("host", "")
    return f"postgresql://{host if isinstance(host, str) else ','.join(host)}{_port(url)}/{url.database}"


def _port(url: sa.URL) -> str:
    return "" if url.port is None else f":{url.port}"
