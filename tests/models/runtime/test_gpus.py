"""GPUs as the drivers' programs list them: programs of these names in PATH print what real ones do."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.runtime.gpus import Gpu, find_gpus

VULKAN = """GPU0:
\tapiVersion         = 1.3.255
\tdeviceType         = PHYSICAL_DEVICE_TYPE_DISCRETE_GPU
\tdeviceName         = Some GPU 16
GPU1:
\tdeviceType         = PHYSICAL_DEVICE_TYPE_CPU
\tdeviceName         = llvmpipe (LLVM 15.0.6, 256 bits)
"""


def program(folder: Path, name: str, output: str, status: int = 0) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{output}\nEND\nexit {status}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_no_program_is_no_gpu(programs: Path) -> None:
    assert find_gpus() == []


def test_nvidia_lists_names_and_memory(programs: Path) -> None:
    program(programs, "nvidia-smi", "Some GPU 24, 24576\nOld GPU, [N/A]")
    assert find_gpus() == [Gpu("Some GPU 24", 24 * 2**30), Gpu("Old GPU", None)]


def test_a_broken_driver_falls_back_to_vulkan_without_software_renderers(programs: Path) -> None:
    program(programs, "nvidia-smi", "Failed to initialize NVML, 1", status=9)
    program(programs, "vulkaninfo", VULKAN)
    assert find_gpus() == [Gpu("Some GPU 16", None)]
