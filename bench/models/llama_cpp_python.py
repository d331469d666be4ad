"""llama-cpp-python's high-level class `Llama`, with which Trunkline's use of llama.cpp is compared.

The package imports diskcache for a cache that is not used here and not installed: an empty module replaces it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def llama_class() -> Any:
    """Returns `llama_cpp.Llama`; runs the package's `__init__` if `models.llm.llama.c_api` has skipped it."""
    sys.modules.setdefault("diskcache", ModuleType("diskcache"))
    package = import_module("llama_cpp")
    if not hasattr(package, "Llama"):
        spec = package.__spec__
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(package)
    return package.Llama
