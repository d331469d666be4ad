"""The PostgreSQL database. Its driver is optional."""

from __future__ import annotations

from importlib.util import find_spec

from config.errors import StartupError
from config.optional_packages import INSTALL_COMMAND


def require_driver() -> None:
    """Raises `StartupError` if the driver is not installed."""
    if find_spec("psycopg") is None:
        raise StartupError(f"the packages for PostgreSQL are not installed: {INSTALL_COMMAND} installs them")
