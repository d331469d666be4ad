"""llama-cpp-python's own class for a model, which ours is compared with.

It imports diskcache, for a cache that nobody here uses and that is not installed: an empty module stands for it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def llama_class() -> Any:
    """`llama_cpp.Llama`; the package's `__init__` is run, if `models.llm.llama.native` has left it out."""
    sys.modules.setdefault("diskcache", ModuleType("diskcache"))
    package = import_module("llama_cpp")
    if not hasattr(package, "Llama"):
        spec = package.__spec__
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(package)
    return package.Llama
