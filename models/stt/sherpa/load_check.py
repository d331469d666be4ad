"""Load check of a recognizer: sherpa-onnx loads it and recognizes two seconds of noise. On invalid files sherpa-onnx
may end the process, by `exit` or by a segmentation fault."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from config.errors import StartupError
from models.model_files.load_checker import LoadCheckCandidate
from models.stt.sherpa.recognizer_config import RecognizerConfig
from models.stt.sherpa.upsampling import RATE, Sound

ENGINE: Final = "sherpa-onnx"
_AUDIO_S: Final = 2.0


def noise(seconds: float) -> Sound:
    """Noise for measurements and load checks, like breath in a receiver."""
    return (0.05 * np.random.default_rng(1).standard_normal(int(RATE * seconds))).astype(np.float32)


def transcribe(recognizer: Any, streaming: bool, sound: Sound) -> str:
    """The transcript of `sound`. Raises whatever sherpa-onnx raises."""
    stream = recognizer.create_stream()
    stream.accept_waveform(RATE, sound.tolist())
    if not streaming:
        recognizer.decode_streams([stream])
        return str(stream.result.text)
    while recognizer.is_ready(stream):
        recognizer.decode_streams([stream])
    return str(recognizer.get_result(stream))


def recognizer_candidate(recipe: RecognizerConfig, name: str, files: tuple[Path, ...]) -> LoadCheckCandidate:
    """The load check of the model `name` with all its files."""
    environment = {"OMP_NUM_THREADS": "1"}
    given = {"name": name, **asdict(recipe)}
    return LoadCheckCandidate(
        name, ENGINE, given, files, (ENGINE,), result_depends_on=("maker",), environment=environment
    )


def run(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Run the check. Raises `StartupError` with sherpa-onnx's error."""
    name = recipe["name"]
    config = RecognizerConfig(recipe["streaming"], recipe["maker"], recipe["arguments"])
    try:
        recognizer = config.create()
        transcribe(recognizer, config.streaming, noise(_AUDIO_S))
        started = time.monotonic()
        transcribe(recognizer, config.streaming, noise(_AUDIO_S))  # the first run also sets itself up
    except Exception as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise StartupError(f"the model {name} cannot be used: {cause}: `trunkline models verify {name}`") from error
    return {"real_time_factor": (time.monotonic() - started) / _AUDIO_S}
