"""The PostgreSQL database. Its driver is optional."""

from __future__ import annotations

from importlib.util import find_spec

from config.errors import StartupError


def require_driver() -> None:
    """Raises `StartupError` if the driver is not installed."""
    if find_spec("psycopg") is None:
        raise StartupError(
            "the packages for PostgreSQL are not installed: `scripts/venv.sh cluster` installs them (pip install "
            "--require-hashes -r requirements-cluster.lock)"
        )
