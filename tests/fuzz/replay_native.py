"""Replays stored inputs with a fuzz harness of the native parsers in the installed extension: `python -m
tests.fuzz.replay_native LIBRARY FILE...`. A process of its own, because a process can have only one PJSUA."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from sipcore import _native


def main(library: str, files: list[str]) -> None:
    """Prints each file's name before it is read."""
    ctypes.CDLL(_native.__file__, mode=ctypes.RTLD_GLOBAL)
    test_one_input = ctypes.CDLL(library).LLVMFuzzerTestOneInput
    test_one_input.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    for file in files:
        print(file, flush=True)
        data = Path(file).read_bytes()
        test_one_input(data, len(data))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
