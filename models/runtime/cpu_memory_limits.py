"""CPU cores and memory for models, within the limits of this process's cgroups."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from config.errors import StartupError

_UNLIMITED_BYTES: Final = 1 << 60
"""The limit of a v1 cgroup without a memory limit is above this."""
_MEMORY_FILES: Final = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
"""By cgroup version: the files of limit and usage, and the page cache's name in `memory.stat`."""


def available_cores(root: Path = Path("/")) -> float:
    """CPU cores that this process may use: its affinity, or less by the CPU quota of a cgroup (v1 or v2)."""
    cores = float(len(os.sched_getaffinity(0)))
    for folder, version in _cgroups(root, "cpu"):
        if version == 2:
            words = _read_text(folder / "cpu.max").split()
        else:
            words = [_read_text(folder / f"cpu.cfs_{directory}_us").strip() for directory in ("quota", "period")]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
            cores = min(cores, int(words[0]) / int(words[1]))
    return cores


def cpu_fingerprint(root: Path = Path("/")) -> str:
    """The architecture and a hash of the CPU flags, because libraries choose their code by them."""
    flags = ""
    with suppress(OSError), (root / "proc/cpuinfo").open() as lines:
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    sorted_flags = " ".join(sorted(flags.partition(":")[2].split()))
    return f"{platform.machine()} {hashlib.sha256(sorted_flags.encode()).hexdigest()[:16]}"


def free_bytes(root: Path = Path("/")) -> int:
    """Bytes of memory that this process may still take: of the machine, and of each cgroup that it is in (v1 or v2).
    Page cache counts as free. Raises `StartupError` if `/proc/meminfo` lacks it."""
    meminfo = _read_table(root / "proc/meminfo")
    if "MemAvailable:" not in meminfo:
        raise StartupError(f"{root / 'proc/meminfo'} does not say how much memory is free")
    return max(0, min([meminfo["MemAvailable:"] * 1024, *_free_in_cgroups(root)]))


def memory_limit_bytes(root: Path = Path("/")) -> int:
    """Bytes of memory that this process may have at all: the machine's, or less by the limit of a cgroup (v1 or v2).
    Raises `StartupError` if `/proc/meminfo` lacks it."""
    meminfo = _read_table(root / "proc/meminfo")
    if "MemTotal:" not in meminfo:
        raise StartupError(f"{root / 'proc/meminfo'} does not say how much memory the machine has")
    limits = (_read_number(folder / _MEMORY_FILES[version][0]) for folder, version in _cgroups(root, "memory"))
    return min([meminfo["MemTotal:"] * 1024, *(limit for limit in limits if limit is not None)])


def _free_in_cgroups(root: Path) -> Iterator[int]:
    for folder, version in _cgroups(root, "memory"):
        limit, used, cached = _MEMORY_FILES[version]
        limit_bytes = _read_number(folder / limit)
        used_bytes = _read_number(folder / used)
        if limit_bytes is not None and used_bytes is not None and limit_bytes < _UNLIMITED_BYTES:
            yield limit_bytes - used_bytes + _read_table(folder / "memory.stat").get(cached, 0)


def _cgroups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """The folders of this process's cgroups with all parents, and their version. In a container the path may not exist:
    it is skipped then."""
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        mount = root / "sys/fs/cgroup"
        if controllers and controller not in controllers.split(","):
            continue
        if controllers:
            mount = next(
                (each for each in (mount / controllers, mount / controller) if each.is_dir()), mount / controller
            )
        group_path = path.lstrip("/")
        own = mount if ".." in group_path.split("/") else mount / group_path
        for folder in (own, *own.parents):
            if folder.is_relative_to(mount):
                yield folder, 1 if controllers else 2


def _read_text(path: Path) -> str:
    """The text of a file; "" if it is missing."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _read_number(path: Path) -> int | None:
    """The number in a file; None if it is missing, or for `max`."""
    text = _read_text(path).strip()
    return int(text) if text.isdigit() else None


def _read_table(path: Path) -> dict[str, int]:
    """A file of names and numbers; empty if it is missing."""
    rows = [line.split() for line in _read_text(path).splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
