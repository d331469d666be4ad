"""Makes a process and its children, which find this module through PYTHONPATH, import another build of
`sipcore._native`: the file NATIVE_EXTENSION."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

NAME = "sipcore._native"


class Finder:
    """Finds `sipcore._native`."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name != NAME:
            return None
        file = os.environ["NATIVE_EXTENSION"]
        loader = importlib.machinery.ExtensionFileLoader(name, file)
        return importlib.util.spec_from_file_location(name, file, loader=loader)


sys.meta_path.insert(0, Finder)
