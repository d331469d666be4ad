"""Kept inputs through the parsers in C, as the installed extension has them, in a process of its own, for each has one
PJSUA: `python -m tests.fuzz.native_replay LIBRARY FILE...`."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from sipcore import _native


def main(library: str, files: list[str]) -> None:
    """Each file's name is written before it is read."""
    ctypes.CDLL(_native.__file__, mode=ctypes.RTLD_GLOBAL)
    take = ctypes.CDLL(library).LLVMFuzzerTestOneInput
    take.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    for file in files:
        print(file, flush=True)
        data = Path(file).read_bytes()
        take(data, len(data))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
