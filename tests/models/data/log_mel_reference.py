"""Sounds made by rule, and what Hugging Face's transformers makes of them: `log_mel_reference.npz`.

It was made with transformers 5.23 and NumPy 2.4 in an environment of their own, since Trunkline needs no transformers:

    python -m tests.models.data.log_mel_reference
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE = 16000
FILE = Path(__file__).with_suffix(".npz")
FRAMES = np.unique(np.concatenate([np.arange(5), np.arange(0, 800, 20), np.arange(795, 800)]))
"""Kept of each sound's 800 frames: both ends and every twentieth."""


def sounds() -> dict[str, NDArray[np.int16]]:
    """`int16[n]` at 16 kHz, n from nothing to more than 8 s."""
    noise = np.random.RandomState(7)
    time = np.arange(10 * RATE) / RATE
    chirp = 9000 * np.sin(2 * np.pi * (80 * time[: 5 * RATE] + 700 * time[: 5 * RATE] ** 2))
    talk = 6000 * np.sin(2 * np.pi * 230 * time[: 3 * RATE]) * (np.sin(2 * np.pi * 1.5 * time[: 3 * RATE]) > 0)
    made = {
        "nothing": np.zeros(0),
        "silence": np.zeros(2 * RATE),
        "click": np.concatenate([np.zeros(5000), [32767], np.zeros(1234)]),
        "noise": noise.normal(0, 900, 30011),
        "noise on a steady offset": noise.normal(400, 60, 8 * RATE),
        "more than eight seconds": noise.normal(0, 3000, 10 * RATE) * (np.sin(2 * np.pi * 0.4 * time) > -0.3),
        "chirp": chirp,
        "tone with pauses": talk,
        "clipped tone, almost eight seconds": np.clip(50000 * np.sin(2 * np.pi * 1234 * time[:127900]), -32768, 32767),
    }
    return {name: np.rint(sound).astype(np.int16) for name, sound in made.items()}


def main() -> None:
    """Write the file."""
    from transformers import WhisperFeatureExtractor

    extract = WhisperFeatureExtractor(chunk_length=8)
    expected = {}
    for name, sound in sounds().items():
        whole = np.pad(sound[-8 * RATE :].astype(np.float32) / 32768, (max(0, 8 * RATE - len(sound)), 0))
        features = extract(
            whole, sampling_rate=RATE, padding="max_length", max_length=8 * RATE, do_normalize=True, return_tensors="np"
        )
        expected[name] = features.input_features[0][:, FRAMES]
    np.savez_compressed(FILE, **expected)


if __name__ == "__main__":
    main()
