"""Migrations of the database by Alembic. Each engine has those of its own up to its first common revision, after which
all are common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import sqlalchemy as sa

from config.errors import StartupError

if TYPE_CHECKING:
    from alembic.config import Config as AlembicConfig

HEAD: Final = "0038"
"""The revision of the newest migration, as a test checks."""
COMPATIBLE_FROM: Final = "0031"
"""The oldest revision whose servers go on with the tables of `HEAD`, beside servers of this version on PostgreSQL: the
migrations since then only add, as a test checks."""
MIGRATIONS: Final = Path(__file__).parents[1] / "migrations"
COMMON: Final = "versions"
COPYING: Final = f"copying {HEAD}"
"""What stands for the revision while rows are copied into the database (`storage.row_copy`)."""

EngineName = Literal["sqlite", "postgresql"]


def is_known_revision(revision: str, engine: EngineName = "sqlite") -> bool:
    """True if this version of Trunkline has the migration; False for a database of a newer version."""
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    try:
        return ScriptDirectory.from_config(alembic_settings(engine)).get_revision(revision) is not None
    except CommandError:
        return False


def check_complete(revision: str | None, name: str) -> None:
    """Raises `StartupError` for a database into which rows are being copied, or were when a process was killed."""
    if revision is not None and revision.startswith(COPYING.partition(" ")[0]):
        raise StartupError(
            f"the database {name} is an incomplete copy: `trunkline database copy` with the same URLs completes it"
        )


def is_compatible(compatible_from: str | None) -> bool:
    """True if this version can use a database of a newer one, whose `COMPATIBLE_FROM` is stored in it."""
    return compatible_from is not None and compatible_from <= HEAD


def require_head(revision: str | None, name: str, compatible_from: str | None = None) -> None:
    """Raises `StartupError` for a database of another revision, or without tables of Trunkline; not for one of a newer
    version that is compatible."""
    check_complete(revision, name)
    if revision != HEAD and not (revision is not None and revision > HEAD and is_compatible(compatible_from)):
        found = "no database of Trunkline" if revision is None else f"at revision {revision}"
        raise StartupError(
            f"the database {name} is {found}, this version reads revision {HEAD}: a start of the server brings an "
            "older one up to date"
        )


def alembic_settings(engine: EngineName = "sqlite") -> AlembicConfig:
    """Returns Alembic's configuration for the packaged migrations; set `attributes["connection"]` before a command."""
    from alembic.config import Config

    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    settings.set_main_option("path_separator", "newline")
    folders = (MIGRATIONS / engine, MIGRATIONS / COMMON)
    settings.set_main_option("version_locations", "\n".join(map(str, folders)).replace("%", "%%"))
    return settings


def upgrade(conn: sa.Connection, engine: EngineName) -> None:
    """Run the missing migrations in the connection's transaction."""
    from alembic import command  # imported late: most starts need no migration, and the import takes 0.3 s

    settings = alembic_settings(engine)
    settings.attributes["connection"] = conn
    command.upgrade(settings, "head")
