"""Paths of code that a worker may still load inside of the sandbox."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = {"site-packages", "dist-packages", "lib-dynload"}
_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
_SEARCHED: Final = "LD_LIBRARY_PATH"


def loadable_paths(*packages: str) -> list[Path]:
    """Returns the paths of Python's modules, the installed packages, shared libraries and these packages of the
    product."""
    installed = (path for path in map(Path, sys.path) if path.name in _PACKAGES)
    searched = filter(None, os.environ.get(_SEARCHED, "").split(":"))
    own = (_ROOT / name for name in packages)
    return [Path(os.__file__).parent, *installed, *map(Path, (*_LIBRARIES, *searched)), *own]
