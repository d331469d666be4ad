"""Replays the stored inputs with the native parsers of the installed extension, without sanitizers (`scripts/fuzz.sh
replay` uses them)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.parsers import CORPUS, NATIVE, NATIVE_PARSERS, stored_inputs

ROOT = Path(__file__).parents[2]
PJSIP = ROOT / "build/pjsip/lib/pkgconfig/libpjproject.pc"


def pjsip_flags(*options: str) -> list[str]:
    return subprocess.run(["pkg-config", *options, PJSIP], check=True, capture_output=True, text=True).stdout.split()


def compile_harness(name: str, folder: Path) -> Path:
    """Compiles a harness, which is linked with the extension when it is loaded. Returns its path."""
    library = folder / f"{name}.so"
    include = f"-I{ROOT}/sipcore/native"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", library, NATIVE / f"fuzz_{name}.c", NATIVE / "stack.c", include,
         *pjsip_flags("--cflags", "--libs"), f"-Wl,-rpath,{pjsip_flags('--variable=libdir')[0]}"],
        check=True,
    )  # fmt: skip
    return library


@pytest.mark.parametrize("name", NATIVE_PARSERS)
def test_a_parser_accepts_every_stored_input(name: str, tmp_path: Path) -> None:
    inputs = stored_inputs(name)
    assert inputs, f"no seeds in {CORPUS / name}"
    harness = compile_harness(name, tmp_path)
    command = [sys.executable, "-m", "tests.fuzz.replay_native", str(harness), *map(str, inputs)]
    replay = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    read = replay.stdout.split()
    assert replay.returncode == 0, f"{name} breaks on {read[-1:]}: {replay.stderr}"
    assert read == list(map(str, inputs))


def test_a_harness_ends_the_process_if_an_invariant_is_violated(tmp_path: Path) -> None:
    source = tmp_path / "fuzz_broken.c"
    source.write_text(
        f'#include "{NATIVE}/stack.h"\n'
        "int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)\n"
        '{ (void)data; must(size > 99999, "long"); return 0; }\n'
    )
    library = tmp_path / "broken.so"
    include = f"-I{ROOT}/sipcore/native"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", library, source, NATIVE / "stack.c", include,
         *pjsip_flags("--cflags", "--libs")],
        check=True,
    )  # fmt: skip
    command = [sys.executable, "-m", "tests.fuzz.replay_native", str(library), str(source)]
    replay = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    assert replay.returncode != 0
    assert "does not hold: long" in replay.stderr
