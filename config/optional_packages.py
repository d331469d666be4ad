"""The Python packages for several nodes, which a checkout lacks by default: psycopg and obstore."""

from __future__ import annotations

from pathlib import Path
from typing import Final


def install_command(root: Path) -> str:
    """Returns the command that installs the packages; `root` is the folder of the program's own packages. In a service
    that `make install` has made without them, it is run in the checkout."""
    if (root / "scripts" / "venv.sh").exists():
        return "scripts/venv.sh cluster"
    return "scripts/venv.sh cluster && sudo make install (in the checkout that this service was installed from)"


INSTALL_COMMAND: Final = install_command(Path(__file__).parents[1])
