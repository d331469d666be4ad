"""Compiles parts of `sipcore/native` on their own, for tests that pass the time as an argument."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def compile_native(folder: Path, *sources: str) -> ctypes.CDLL:
    """Compile these files, with paths from the root of the project, into a library."""
    library = folder / "part.so"
    files = [str(ROOT / source) for source in sources]
    options = ["-shared", "-fPIC", f"-I{ROOT}/sipcore/native", f"-Wl,-rpath,{_pjsip('--variable=libdir')[0]}"]
    subprocess.run(["cc", *options, "-o", str(library), *files, *_pjsip("--cflags", "--libs")], check=True)
    return ctypes.CDLL(str(library))


def _pjsip(*asked: str) -> list[str]:
    """pkg-config's output for the PJSIP that `sipcore._native` is linked with."""
    description = ROOT / "build/pjsip/lib/pkgconfig/libpjproject.pc"
    return subprocess.run(
        ["pkg-config", *asked, description], check=True, capture_output=True, text=True
    ).stdout.split()
