"""The machine's resources for models: cores and memory, within the limits of this process's control groups."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from config.errors import StartupError

_NO_LIMIT: Final = 1 << 60
"""A control group (version 1) without a limit of memory says a number beyond this."""
_MEMORY_FILES: Final = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
"""By the version of control groups: the limit, the use, and the figure for files in `memory.stat`."""


def available_cores(root: Path = Path("/")) -> float:
    """Cores that this process may use: those that it may run on, or less where a control group (version 1 or 2) has a
    smaller share of time."""
    there = float(len(os.sched_getaffinity(0)))
    for folder, version in _groups(root, "cpu"):
        if version == 2:
            words = _text(folder / "cpu.max").split()
        else:
            words = [_text(folder / f"cpu.cfs_{each}_us").strip() for each in ("quota", "period")]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
            there = min(there, int(words[0]) / int(words[1]))
    return there


def cpu_kind(root: Path = Path("/")) -> str:
    """The kind of processor, and a hash of what it can do as Linux tells it: code that is made for what is there runs
    differently on another one."""
    flags = ""
    with suppress(OSError), (root / "proc/cpuinfo").open() as lines:
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    able = " ".join(sorted(flags.partition(":")[2].split()))
    return f"{platform.machine()} {hashlib.sha256(able.encode()).hexdigest()[:16]}"


def free_bytes(root: Path = Path("/")) -> int:
    """What this process may still take without harming others: of the machine, and of each control group that it is
    in (version 1 or 2). What a group keeps of files counts as free. Raises `StartupError` when Linux does not say."""
    meminfo = _numbers(root / "proc/meminfo")
    if "MemAvailable:" not in meminfo:
        raise StartupError(f"{root / 'proc/meminfo'} does not say how much memory is free")
    return max(0, min([meminfo["MemAvailable:"] * 1024, *_left_in_groups(root)]))


def _left_in_groups(root: Path) -> Iterator[int]:
    for folder, version in _groups(root, "memory"):
        limit, used, cached = _MEMORY_FILES[version]
        most = _number(folder / limit)
        taken = _number(folder / used)
        if most is not None and taken is not None and most < _NO_LIMIT:
            yield most - taken + _numbers(folder / "memory.stat").get(cached, 0)


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """The folders of the control groups that bound this process, each with those around it, and their version. In a
    container the path may be that of another view: what is not there is passed over."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        tree = root / "sys/fs/cgroup"
        if controllers and controller not in controllers.split(","):
            continue
        if controllers:
            tree = next((each for each in (tree / controllers, tree / controller) if each.is_dir()), tree / controller)
        inner = path.lstrip("/")
        own = tree if ".." in inner.split("/") else tree / inner
        for folder in (own, *own.parents):
            if folder.is_relative_to(tree):
                yield folder, 1 if controllers else 2


def _text(path: Path) -> str:
    """What a file says; "" when it is not there."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    """A file that holds a number; None when it is not there, or says `max`."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _numbers(path: Path) -> dict[str, int]:
    """A file of names and numbers; empty when it is not there."""
    rows = [line.split() for line in _text(path).splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
