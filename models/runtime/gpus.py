"""The GPUs of this machine, as the drivers' own programs tell them. None is the usual case."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import Final

_TIMEOUT_S: Final = 10
_NVIDIA: Final = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_VULKAN: Final = ("vulkaninfo", "--summary")
_VULKAN_DEVICE: Final = re.compile(r"deviceType\s*=\s*(\S+)\s+deviceName\s*=\s*(.+)")


@dataclass(frozen=True)
class Gpu:
    """`memory_bytes`: None if unknown."""

    name: str
    memory_bytes: int | None


def find_gpus() -> list[Gpu]:
    """The GPUs that `nvidia-smi` lists, else those that Vulkan does; empty without such a program or a working driver.
    Takes up to some seconds."""
    return _nvidia_gpus(_output(_NVIDIA)) or _vulkan_gpus(_output(_VULKAN))


def _output(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True, text=True, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _nvidia_gpus(output: str) -> list[Gpu]:
    rows = [line.rpartition(",") for line in output.splitlines() if "," in line]
    return [Gpu(name.strip(), int(memory) * 2**20 if memory.strip().isdigit() else None) for name, _, memory in rows]


def _vulkan_gpus(output: str) -> list[Gpu]:
    """Software renderers (llvmpipe) are no GPUs."""
    return [Gpu(name.strip(), None) for kind, name in _VULKAN_DEVICE.findall(output) if "CPU" not in kind]
