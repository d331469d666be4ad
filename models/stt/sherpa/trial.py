"""The trial of a recognizer: sherpa-onnx loads it and recognizes two seconds of noise. Files that sherpa-onnx does not
like may end its process: by `exit`, or by touching memory that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from config.errors import StartupError
from models.model_files.trial import TrialCandidate
from models.stt.sherpa.recognizer_config import RecognizerConfig
from models.stt.sherpa.upsampling import RATE, Sound

ENGINE: Final = "sherpa-onnx"


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


def recognizer_candidate(recipe: RecognizerConfig, name: str, files: tuple[Path, ...]) -> TrialCandidate:
    """The model `name` with all its files."""
    environment = {"OMP_NUM_THREADS": "1"}
    given = {"name": name, **asdict(recipe)}
    return TrialCandidate(name, ENGINE, given, files, (ENGINE,), lasting=("maker",), environment=environment)


def run(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Try it. Raises `StartupError` with what sherpa-onnx says."""
    name = recipe["name"]
    made = RecognizerConfig(recipe["streaming"], recipe["maker"], recipe["arguments"])
    try:
        hear(made.recognizer(), made.streaming, noise(2))
    except Exception as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise StartupError(f"the model {name} cannot be used: {cause}: `trunkline models verify {name}`") from error
    return {}
