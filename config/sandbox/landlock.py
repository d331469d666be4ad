"""Landlock (landlock(7)): limits the files that a worker can read; on newer kernels also forbids TCP ports and signals
to processes outside of the sandbox."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from config.sandbox.libc import call, forbid_new_privileges

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # The same on all architectures but Alpha.
_VERSION_FLAG: Final = 1
_PATH_BENEATH: Final = 1
_READ_FILES: Final = 1 << 2
_LIST_FOLDERS: Final = 1 << 3
_FILE_RIGHTS: Final = ((1, 13), (2, 14), (3, 15), (5, 16))
"""Versions of Landlock, each with its number of file access rights."""
_TCP_SINCE, _TCP = 4, 0b11
"""To bind, to connect."""
_SCOPES_SINCE, _SCOPES = 6, 0b11
"""Abstract Unix sockets, signals."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("path", ctypes.c_int32))


def version() -> int:
    """Returns the kernel's version of Landlock. Raises `OSError` when there is none."""
    return call("syscall", ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))


def is_available() -> bool:
    """True if the kernel has Landlock, and it is enabled."""
    with suppress(OSError):
        return version() > 0
    return False


def restrict(readable: Sequence[Path]) -> str:
    """Restrict this process to opening files beneath `readable`, for reading. Returns "", or why it is not enforced."""
    try:
        _restrict(version(), readable)
    except OSError as error:
        return f"the kernel has no Landlock ({error.strerror})"
    return ""


def _restrict(abi: int, readable: Sequence[Path]) -> None:
    rules = _Ruleset(
        max((1 << count) - 1 for since, count in _FILE_RIGHTS if abi >= since),
        _TCP if abi >= _TCP_SINCE else 0,
        _SCOPES if abi >= _SCOPES_SINCE else 0,
    )
    size = ctypes.c_size_t(ctypes.sizeof(rules))
    ruleset = call("syscall", ctypes.c_long(_CREATE_RULESET), ctypes.byref(rules), size, ctypes.c_uint32(0))
    try:
        for path in readable:
            _allow(ruleset, path)
        forbid_new_privileges()
        call("syscall", ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rule = _Beneath(_READ_FILES | (_LIST_FOLDERS if path.is_dir() else 0), opened)
        kind, none = ctypes.c_int(_PATH_BENEATH), ctypes.c_uint32(0)
        call("syscall", ctypes.c_long(_ADD_RULE), ctypes.c_int(ruleset), kind, ctypes.byref(rule), none)
    finally:
        os.close(opened)
