"""The process of a load check (`models.model_files.load_checker`): it limits its own resources, runs the engine's check
and writes one line of JSON: `{"passed": {...}}`, `{"refused": "error"}` or `{"silent": "message"}`.

    python -P -m models.loading.load_check_process ENGINE MODEL < request.json
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from config import background_process

ENGINES: Final[Mapping[str, str]] = {
    "llama.cpp": "models.llm.llama.load_check",
    "sherpa-onnx": "models.stt.sherpa.load_check",
    "piper": "models.tts.piper.load_check",
    "onnx": "models.embeddings.load_check",
}
"""The module whose `run` checks an engine's models by their recipes. It returns results by name, raises
`NoModelOutput`, or another exception if the engine rejects the model."""
_PR_SET_DUMPABLE: Final = 4
_NICENESS: Final = 5
"""Calls have priority."""
_MAX_FILE_BYTES: Final = 1 << 20
"""Bytes that it may write into a file, because a library may log without end."""


def main() -> None:
    """Run the check. Output of libraries goes to standard error, not into the result."""
    result_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = json.load(sys.stdin)
    _confine(request["parent"], request["memory_bytes"])
    os.write(result_fd, json.dumps(_run_check(sys.argv[1], request["recipe"])).encode() + b"\n")
    os._exit(0)  # exit handlers of libraries are not part of the check


def _run_check(engine: str, recipe: Mapping[str, Any]) -> dict[str, Any]:
    from models.model_files.load_checker import NoModelOutput

    try:
        return {"passed": import_module(ENGINES[engine]).run(recipe)}
    except NoModelOutput as error:
        return {"silent": str(error)}
    except Exception as error:  # noqa: BLE001 - any error is reported in one line
        return {"refused": " ".join(str(error).split()) or type(error).__name__}


def _confine(parent: int, memory_bytes: int) -> None:
    """Limit this process: no core dump, bounded memory, first choice of the OOM killer, and killed with its parent."""
    background_process.begin(parent, _NICENESS)
    limits = (
        (resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_FSIZE, _MAX_FILE_BYTES)
    )  # fmt: skip
    for resource_id, limit in limits:
        _, hard = resource.getrlimit(resource_id)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource_id, (limit, limit))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)


if __name__ == "__main__":
    main()
