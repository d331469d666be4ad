"""Small file systems, for tests of full disks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NEEDS_ROOT = "mounting a small disk needs root: there is no other way to fill up one folder of a running server"


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """Mount a file system of that size on the folder for the block; False if that is not permitted."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
    )
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def tiny_disk(folder: Path, size: str) -> Iterator[None]:
    """`small_disk`, which skips the test if that is not permitted."""
    with small_disk(folder, size) as mounted:
        if not mounted:
            pytest.skip(NEEDS_ROOT)
        yield


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Fill up the folder's disk for the block."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    try:
        yield
    finally:
        ballast.unlink()
