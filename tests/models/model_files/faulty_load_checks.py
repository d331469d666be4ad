"""Makes load checks end with faults: the real process exits or is killed where it would load the library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

FAULTS: Final[Mapping[str, str]] = {
    "SIGSEGV": "os.kill(os.getpid(), signal.SIGSEGV)",
    "SIGABRT": "os.write(2, b'GGML_ASSERT(x) failed'); os.abort()",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGILL": "os.kill(os.getpid(), signal.SIGILL)",
    "time limit": "time.sleep(3600)",
    "status 255": "os.write(2, b'what now'); os._exit(255)",
    "nothing": "os._exit(0)",
    "garbage": "os.write(ANSWER, b'[1, 2'); os._exit(0)",
    "another answer": "os.write(ANSWER, b'{\"passed\": 7}'); os._exit(0)",
}
"""What is run in the process, by the fault that it is told as."""
_PROGRAM: Final = """
import os, signal, sys, time
FAULTS = {faults!r}
ANSWER = os.dup(1)
if "models.loading.load_check_process" in sys.orig_argv and sys.orig_argv[-1] in FAULTS:
    def at_import(event, args):
        if event == "import" and args[0] in ("llama_cpp.llama_cpp", "onnxruntime"):
            exec(FAULTS[sys.orig_argv[-1]])
    sys.addaudithook(at_import)
"""


def break_load_checks(monkeypatch: pytest.MonkeyPatch, folder: Path, faults: Mapping[str, str]) -> None:
    """Make load checks end with faults (`FAULTS`) during the test, by model name."""
    monkeypatch.syspath_prepend(str(write_faults(folder, faults)))


def write_faults(folder: Path, faults: Mapping[str, str]) -> Path:
    """The same for programs with the folder in their PYTHONPATH."""
    folder.mkdir(exist_ok=True)
    programs = {model: FAULTS[fault] for model, fault in faults.items()}
    (folder / "sitecustomize.py").write_text(_PROGRAM.format(faults=programs))
    return folder
