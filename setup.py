"""Builds the one compiled part, sipcore._native, against Trunkline's build of PJSIP; everything else is declared in
setup.cfg."""

import os
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
SOURCES = Path("sipcore/native")


def pjsip_flags(option: str) -> list[str]:
    """What pkg-config says of the PJSIP in PJSIP_PREFIX, or else of the one that `make setup` linked to build/pjsip."""
    prefix = Path(os.environ.get("PJSIP_PREFIX") or ROOT / "build/pjsip").resolve()
    description = prefix / "lib/pkgconfig/libpjproject.pc"
    if not description.exists():
        raise SystemExit(f"no PJSIP in {prefix}: run `make setup`, or set PJSIP_PREFIX")
    return subprocess.run(
        ["pkg-config", option, str(description)], check=True, capture_output=True, text=True
    ).stdout.split()


def native_extension() -> Extension:
    """The extension finds PJSIP by an absolute run path, the same one as pjsua2's, so that both share one library."""
    library_dir = pjsip_flags("--variable=libdir")[0]
    return Extension(
        "sipcore._native",
        sources=sorted(str(path.relative_to(ROOT)) for path in (ROOT / SOURCES).rglob("*.c*")),
        depends=sorted(str(path.relative_to(ROOT)) for path in (ROOT / SOURCES).rglob("*.h")),
        include_dirs=[str(SOURCES)],
        extra_compile_args=[
            "-O3",
            "-Wall",
            "-Wextra",
            "-Werror=incompatible-pointer-types",
            "-DNDEBUG",
            *pjsip_flags("--cflags"),
        ],
        extra_link_args=["-Wl,--as-needed", *pjsip_flags("--libs"), f"-Wl,-rpath,{library_dir}"],
    )


def commit() -> str:
    """The commit that is built: `BUILD_COMMIT`, or that of the checkout; empty if there is neither."""
    if given := os.environ.get("BUILD_COMMIT"):
        return given
    try:
        command = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


class BuildWithCommit(build_py):
    """Writes the commit into the package, for `trunkline --version`. A checkout says it itself."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode and (built := commit()):
            file = Path(self.build_lib) / "trunkline/commit.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{built}\n")


setup(ext_modules=[native_extension()], cmdclass={"build_py": BuildWithCommit})
