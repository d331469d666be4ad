"""The trial of a Piper voice: its network is loaded and speaks a few phonemes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from models.model_files.trial import NoOutput, TrialCandidate

ENGINE: Final = "piper"
_PHONEMES: Final = 8


def voice_candidate(network: Path, settings: Path, name: str) -> TrialCandidate:
    """The files of the voice `name`."""
    return TrialCandidate(
        name, ENGINE, {"network": str(network), "settings": str(settings)}, (network, settings), ("onnxruntime",)
    )


def run(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Try it. Raises `NoOutput`, and `ModelError` or `ValueError` with what is wrong with the files."""
    from models.tts.piper.voice import CancellableRun, Network, Scales
    from models.tts.piper.voice_config import read_config

    config = read_config(Path(recipe["settings"]))
    normal = config.inference
    network = Network(Path(recipe["network"]), config, 1)
    ids = [number for each in islice(config.phoneme_id_map.values(), _PHONEMES) for number in each]
    scales = Scales(normal.noise_scale, normal.length_scale, normal.noise_w)
    sound = network.speak(ids, scales, 0, CancellableRun())
    if sound is None or not len(sound.samples):
        raise NoOutput("brought no sound")
    if not np.isfinite(sound.samples).all():
        raise NoOutput("brought sound that is no numbers")
    return {"samples": len(sound.samples)}
