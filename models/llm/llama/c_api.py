"""llama.cpp's C interface, declared for ctypes by llama-cpp-python: `lib` is its module `llama_cpp.llama_cpp`.

The package's `__init__` is not run, because it imports classes that are not used here and, with them, diskcache, which
is unmaintained, has an open vulnerability and is not installed.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

_PACKAGE: Final = "llama_cpp"


def _bindings() -> Any:
    """The module `llama_cpp.llama_cpp`. Raises `ModuleNotFoundError` if the package is not installed."""
    spec = None if _PACKAGE in sys.modules else find_spec(_PACKAGE)
    if spec is not None:
        sys.modules[_PACKAGE] = module_from_spec(spec)
    import llama_cpp.llama_cpp

    return llama_cpp.llama_cpp


lib: Final = _bindings()
