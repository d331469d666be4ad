"""`trunkline --version`: version and commit, and those of the parts that it is built with. It never fails."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import platform
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import click

UNKNOWN: Final = "unknown"
COMMIT_FILE: Final = "commit.txt"
"""In the package `trunkline`: the commit that it was built from. `setup.py` writes it into wheels, the Dockerfile into
the image."""
_ROOT: Final = Path(__file__).parents[3]
_GIT_TIMEOUT_S: Final = 3
_PARTS: Final = (
    ("llama.cpp (llama-cpp-python)", "llama_cpp_python"), ("onnxruntime", "onnxruntime"),
    ("sherpa-onnx", "sherpa-onnx"), ("pocketsphinx", "pocketsphinx"),
    ("Piper", "piper-tts"), ("Silero VAD", "silero-vad"), ("aiohttp", "aiohttp"), ("SQLAlchemy", "sqlalchemy"),
)  # fmt: skip
"""Parts by their distribution."""


def print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Callback of `--version`."""
    if value and not ctx.resilient_parsing:
        click.echo("\n".join(version_lines()))
        ctx.exit()


def version_lines() -> list[str]:
    """The lines of `trunkline --version`; what cannot be found out is `unknown`."""
    parts = {
        "Python": platform.python_version(),
        "PJSIP": _known(_pjsip_version),
        **{name: _known(partial(importlib.metadata.version, package)) for name, package in _PARTS},
    }
    width = max(map(len, parts))
    first = f"trunkline {_known(lambda: importlib.metadata.version('trunkline'))} (commit {commit()})"
    return [first, *(f"  {name:{width}}  {version}" for name, version in parts.items())]


def commit(root: Path = _ROOT) -> str:
    """The commit of a checkout, or the one that was baked in when the package was built; `unknown` without both."""
    return _known(lambda: _commit_of_checkout(root) if (root / ".git").exists() else _baked_commit(root))


def _baked_commit(root: Path) -> str:
    return (root / "trunkline" / COMMIT_FILE).read_text().strip()


def _commit_of_checkout(root: Path) -> str:
    """The commit, with a `+` if tracked files were changed."""
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True)
    return done.stdout.strip()


def _pjsip_version() -> str:
    """PJSIP's own, from the library that the extension is linked with."""
    spec = importlib.util.find_spec("sipcore._native")
    if spec is None or spec.origin is None:
        return UNKNOWN
    get_version = ctypes.CDLL(spec.origin).pj_get_version
    get_version.restype = ctypes.c_char_p
    return str(get_version().decode("ascii"))


def _known(find: Callable[[], str]) -> str:
    """What the function returns; `unknown` if it fails or returns nothing."""
    try:
        return find() or UNKNOWN
    except Exception:  # noqa: BLE001 - whatever is wrong with an installation, its version is printed
        return UNKNOWN
