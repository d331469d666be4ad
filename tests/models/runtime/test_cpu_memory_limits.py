"""The machine's cores and free memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.errors import StartupError
from models.runtime.cpu_memory_limits import available_cores, free_bytes, memory_limit_bytes

MIB = 2**20


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal:  8000000 kB\nMemFree:  100000 kB\nMemAvailable:  2048 kB\nHugePages_Total:  0\n"}


def test_without_cgroups_the_machines_memory_counts(tmp_path: Path) -> None:
    assert free_bytes(write(tmp_path, MEMINFO)) == 2 * MIB


def test_the_narrowest_cgroup_counts_and_its_page_cache_is_free(tmp_path: Path) -> None:
    groups = {
        "proc/self/cgroup": "0::/system.slice/ours\n",
        "sys/fs/cgroup/system.slice/ours/memory.max": "max\n",
        "sys/fs/cgroup/system.slice/ours/memory.current": "1000\n",
        "sys/fs/cgroup/system.slice/memory.max": "1048576\n",
        "sys/fs/cgroup/system.slice/memory.current": "1000000\n",
        "sys/fs/cgroup/system.slice/memory.stat": "anon 990000\ninactive_file 1000\n",
    }
    assert free_bytes(write(tmp_path, MEMINFO | groups)) == 1_048_576 - 1_000_000 + 1000


def test_v1_cgroups_count_and_unlimited_ones_do_not(tmp_path: Path) -> None:
    groups = {
        "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/pod/one\n0::/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
        "sys/fs/cgroup/memory/pod/one/memory.limit_in_bytes": "500000\n",
        "sys/fs/cgroup/memory/pod/one/memory.usage_in_bytes": "400000\n",
    }
    assert free_bytes(write(tmp_path, MEMINFO | groups)) == 100_000


def test_a_cgroup_inside_a_container_counts_by_its_mount(tmp_path: Path) -> None:
    groups = {
        "proc/self/cgroup": "0::/../../elsewhere\n",
        "sys/fs/cgroup/memory.max": "300000\n",
        "sys/fs/cgroup/memory.current": "400000\n",
    }
    assert free_bytes(write(tmp_path, MEMINFO | groups)) == 0


def test_the_memory_limit_is_the_machines_or_the_narrowest_cgroups(tmp_path: Path) -> None:
    assert memory_limit_bytes(write(tmp_path, MEMINFO)) == 8_000_000 * 1024
    groups = {"proc/self/cgroup": "0::/ours\n", "sys/fs/cgroup/ours/memory.max": "1048576\n"}
    assert memory_limit_bytes(write(tmp_path, groups)) == MIB


def test_a_missing_meminfo_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"meminfo does not say"):
        free_bytes(tmp_path)


def test_without_a_quota_all_cores_of_the_affinity_count(tmp_path: Path) -> None:
    assert available_cores(tmp_path) == len(os.sched_getaffinity(0))


def test_a_cgroups_cpu_quota_counts(tmp_path: Path) -> None:
    groups = {
        "proc/self/cgroup": "0::/ours\n",
        "sys/fs/cgroup/ours/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/cpu.max": "max 100000\n",
    }
    assert available_cores(write(tmp_path, groups)) == 0.5


def test_a_v1_cgroups_cpu_quota_counts(tmp_path: Path) -> None:
    groups = {
        "proc/self/cgroup": "7:cpu,cpuacct:/ours\n",
        "sys/fs/cgroup/cpu,cpuacct/ours/cpu.cfs_quota_us": "25000\n",
        "sys/fs/cgroup/cpu,cpuacct/ours/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    assert available_cores(write(tmp_path, groups)) == 0.25
