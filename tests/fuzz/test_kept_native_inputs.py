"""The same for the parsers in C, as they are installed: without sanitizers, which `make fuzz` has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.parsers import CORPUS, NATIVE, NATIVE_PARSERS, kept

ROOT = Path(__file__).parents[2]
PJSIP = ROOT / "build/pjsip/lib/pkgconfig/libpjproject.pc"


def pjsip(*asked: str) -> list[str]:
    return subprocess.run(["pkg-config", *asked, PJSIP], check=True, capture_output=True, text=True).stdout.split()


def compiled(name: str, folder: Path) -> Path:
    """The harness; what it tests it finds in the extension."""
    library = folder / f"{name}.so"
    ours = f"-I{ROOT}/sipcore/native"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", library, NATIVE / f"fuzz_{name}.c", NATIVE / "stack.c", ours,
         *pjsip("--cflags", "--libs"), f"-Wl,-rpath,{pjsip('--variable=libdir')[0]}"],
        check=True,
    )  # fmt: skip
    return library


@pytest.mark.parametrize("name", NATIVE_PARSERS)
def test_it_takes_every_kept_input(name: str, tmp_path: Path) -> None:
    inputs = kept(name)
    assert inputs, f"no seeds in {CORPUS / name}"
    command = [sys.executable, "-m", "tests.fuzz.native_replay", str(compiled(name, tmp_path)), *map(str, inputs)]
    replay = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    read = replay.stdout.split()
    assert replay.returncode == 0, f"{name} breaks on {read[-1:]}: {replay.stderr}"
    assert read == list(map(str, inputs))


def test_a_harness_ends_the_process_where_an_invariant_does_not_hold(tmp_path: Path) -> None:
    source = tmp_path / "fuzz_broken.c"
    source.write_text(
        f'#include "{NATIVE}/stack.h"\n'
        "int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)\n"
        '{ (void)data; must(size > 99999, "long"); return 0; }\n'
    )
    library = tmp_path / "broken.so"
    ours = f"-I{ROOT}/sipcore/native"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", library, source, NATIVE / "stack.c", ours, *pjsip("--cflags", "--libs")],
        check=True,
    )
    command = [sys.executable, "-m", "tests.fuzz.native_replay", str(library), str(source)]
    replay = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    assert replay.returncode != 0
    assert "does not hold: long" in replay.stderr
