"""Copies the installed packages of locks from the environment of this Python: `copy_packages.py TARGET LOCK...`.

Files outside of the environment's packages, such as scripts, are left out. Compiled modules are copied with their
sources, whose times stay, so that they stay valid.
"""

from __future__ import annotations

import re
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

_LOCKED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: *; *([^\\\n]+))?", re.MULTILINE)


def copy_packages(target: Path, *locks: Path) -> int:
    """Returns the number of packages. Ends the program with a message if one is not installed in its version."""
    copied = 0
    for lock in locks:
        for name, version, marker in _LOCKED.findall(lock.read_text()):
            try:
                found = distribution(name)
            except ModuleNotFoundError:
                if marker:  # it is for other machines
                    continue
                raise SystemExit(f"error: {name} is not installed\n  what to do: make setup") from None
            if found.version != version and not marker:
                raise SystemExit(f"error: {name} {found.version} is installed, not {version}\n  what to do: make setup")
            for file in found.files or ():
                source = Path(str(file.locate()))
                if ".." in file.parts or not source.is_file():
                    continue
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target / file)
            copied += 1
    return copied


if __name__ == "__main__":
    print(copy_packages(*map(Path, sys.argv[1:])))
