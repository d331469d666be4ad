"""Load check of a Piper voice: loads its network and synthesizes a few phonemes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from models.model_files.load_checker import LoadCheckCandidate, NoModelOutput

ENGINE: Final = "piper"
_PHONEMES: Final = 8


def voice_candidate(network: Path, settings: Path, name: str) -> LoadCheckCandidate:
    """The load check of the voice `name`."""
    return LoadCheckCandidate(
        name, ENGINE, {"network": str(network), "settings": str(settings)}, (network, settings), ("onnxruntime",)
    )


def run(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Run the check. Raises `NoModelOutput`, and `ModelError` or `ValueError` with the fault of the files."""
    from models.tts.piper.voice import CancellableRun, Scales, VitsNetwork
    from models.tts.piper.voice_config import read_config

    config = read_config(Path(recipe["settings"]))
    defaults = config.inference
    network = VitsNetwork(Path(recipe["network"]), config, 1)
    ids = [number for each in islice(config.phoneme_id_map.values(), _PHONEMES) for number in each]
    scales = Scales(defaults.noise_scale, defaults.length_scale, defaults.noise_w)
    sound = network.speak(ids, scales, 0, CancellableRun())
    if sound is None or not len(sound.samples):
        raise NoModelOutput("brought no sound")
    if not np.isfinite(sound.samples).all():
        raise NoModelOutput("brought sound that is no numbers")
    started = time.monotonic()
    network.speak(ids, scales, 0, CancellableRun())  # the first run also sets itself up
    seconds = time.monotonic() - started
    return {
        "samples": len(sound.samples),
        "real_time_factor": seconds * config.audio.sample_rate / len(sound.samples),
    }
