"""The process in which `models.model_files.trial` has a model tried: it confines itself, runs what the model's engine
has for this, and writes one line of JSON: `{"passed": {...}}`, `{"refused": "why"}` or `{"silent": "what"}`.

    python -P -m models.loading.trial_process ENGINE MODEL < given.json
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

ENGINES: Final[Mapping[str, str]] = {
    "llama.cpp": "models.llm.llama.trial",
    "sherpa-onnx": "models.stt.sherpa.trial",
    "piper": "models.tts.piper.trial",
    "onnx": "models.embeddings.trial",
}
"""The module whose `run` takes an engine's recipes. It returns what it found by names, raises `NoOutput`, or
whatever says that the engine refuses the model."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_NICENESS: Final = 5
"""Calls may be held meanwhile."""
_MOST_WRITTEN: Final = 1 << 20
"""Bytes that it may write into a file: libraries that complain without end."""


def main() -> None:
    """See the module. What libraries print goes to standard error, and not into the answer."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    given = json.load(sys.stdin)
    _confine(given["parent"], given["memory_bytes"])
    os.write(answer, json.dumps(_result(sys.argv[1], given["recipe"])).encode() + b"\n")
    os._exit(0)  # what libraries do when a process ends is not what is tried


def _result(engine: str, recipe: Mapping[str, Any]) -> dict[str, Any]:
    from models.model_files.trial import NoOutput

    try:
        return {"passed": import_module(ENGINES[engine]).run(recipe)}
    except NoOutput as error:
        return {"silent": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is said in one line
        return {"refused": " ".join(str(error).split()) or type(error).__name__}


def _confine(parent: int, memory_bytes: int) -> None:
    """No core dump, no more memory than it can need, the first to go when the machine has none left; and an end with
    the process that wants to know."""
    system = ctypes.CDLL(None)
    system.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it could be told
        os._exit(0)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    os.nice(_NICENESS)
    limits = (
        (resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_FSIZE, _MOST_WRITTEN)
    )  # fmt: skip
    for what, most in limits:
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    system.prctl(_PR_SET_DUMPABLE, 0)


if __name__ == "__main__":
    main()
