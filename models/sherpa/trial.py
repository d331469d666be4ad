"""Loads a model in a process of its own and lets it hear a second of noise, for files that sherpa-onnx does not like
may end its process: by `exit`, or by touching memory that is not there.

    python -m models.sherpa.trial < recipe.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog

from config.errors import StartupError
from models.sherpa.doubled_rate import RATE, Sound
from models.sherpa.recipe import Recipe

_LIMIT_S: Final = 180
_NOTES: Final = ".tried"
"""In the folder of all models: which files of each have passed."""

_log = structlog.get_logger()


def noise(seconds: float) -> Sound:
    """What a model hears that is measured or tried: like breath in a receiver."""
    return (0.05 * np.random.default_rng(1).standard_normal(int(RATE * seconds))).astype(np.float32)


def hear(recognizer: Any, streaming: bool, sound: Sound) -> str:
    """The text of a sound. Raises whatever sherpa-onnx raises."""
    stream = recognizer.create_stream()
    stream.accept_waveform(RATE, sound.tolist())
    if not streaming:
        recognizer.decode_streams([stream])
        return str(stream.result.text)
    while recognizer.is_ready(stream):
        recognizer.decode_streams([stream])
    return str(recognizer.get_result(stream))


def try_out(recipe: Recipe, name: str, folder: Path) -> None:
    """Try the model `name` whose files lie in `folder`, unless just these have passed before. Raises `StartupError`
    with one line when it cannot be used."""
    stamp = _stamp(recipe, folder)
    passed = folder.parent / _NOTES / f"{name}.json"
    if passed.is_file() and passed.read_text() == stamp:
        return
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "models.sherpa.trial"],
            input=json.dumps(asdict(recipe)),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StartupError(f"the model {name} does not load within {_LIMIT_S} s: choose a smaller one") from error
    if done.returncode:
        raise StartupError(f"the model {name} cannot be used: {_cause(done)}: `trunkline models verify {name}`")
    try:
        passed.parent.mkdir(exist_ok=True)
        passed.write_text(stamp)
    except OSError as error:
        _log.info("stt.trial_not_noted", model=name, error=str(error))


def _stamp(recipe: Recipe, folder: Path) -> str:
    """What passed: this version of sherpa-onnx with these files."""
    files = {
        path.name: [path.stat().st_size, path.stat().st_mtime_ns] for path in sorted(folder.iterdir()) if path.is_file()
    }
    return json.dumps({"sherpa-onnx": version("sherpa-onnx"), "maker": recipe.maker, "files": files})


def _cause(done: subprocess.CompletedProcess[str]) -> str:
    """The line that says most of what went wrong."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if lines:
        return lines[-1][:300]
    return f"sherpa-onnx was ended by signal {-done.returncode}" if done.returncode < 0 else "sherpa-onnx gave up"


def _main() -> None:
    recipe = Recipe(**json.load(sys.stdin))
    try:
        hear(recipe.recognizer(), recipe.streaming, noise(2))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is said in one line
        print(" ".join(str(error).split()) or type(error).__name__, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    _main()
