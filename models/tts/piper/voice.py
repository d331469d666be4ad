"""One Piper voice: its network, and the audio and phoneme durations that it computes."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from config.errors import ModelError
from media.onnx import onnxruntime
from models.tts.piper.duration_output import read_graph, with_output
from models.tts.piper.voice_config import VoiceConfig

_INPUTS: Final = ("input", "input_lengths", "scales")
_SPEAKER: Final = "sid"
_REMEDY: Final = "run `trunkline models verify`, and pull the voice again"


@dataclass(frozen=True)
class Scales:
    """The variable inputs of a network: noise in the audio, duration of phonemes, noise in the durations."""

    noise: float
    length: float
    length_noise: float


@dataclass(frozen=True)
class NetworkOutput:
    """`float32[n]` at the voice's rate, and the number of samples of each id, `int64[ids]`, which sum up to n; None if
    the network does not return them."""

    samples: NDArray[np.float32]
    id_samples: NDArray[np.int64] | None


class CancellableRun:
    """One run of a network, which another thread may stop."""

    def __init__(self) -> None:
        self._options = onnxruntime.RunOptions()
        self.stopped = False

    def stop(self) -> None:
        """Stop the network at its next node."""
        self.stopped = True
        self._options.terminate = True

    @property
    def options(self) -> Any:
        """onnxruntime's options of the run."""
        return self._options


def check_network(path: Path, config: VoiceConfig) -> None:
    """Check a network's file without loading it. Raises `ValueError`: one line."""
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # Unmapped with its last view.
        inputs = read_graph(memoryview(content)).inputs
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): {_REMEDY}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not a Piper voice's network ({error}): {_REMEDY}") from error
    expected = {*_INPUTS, _SPEAKER} if config.speakers else {*_INPUTS}
    if set(inputs) != expected:
        raise ValueError(
            f"{path} has the inputs {', '.join(inputs)} instead of {', '.join(sorted(expected))}: {_REMEDY}"
        )


class VitsNetwork:
    """A voice's VITS network. Any thread may run it, several at once."""

    def __init__(self, path: Path, config: VoiceConfig, threads: int) -> None:
        """`threads` compute one sentence. Takes about a second, and memory of one and a half times the file. Raises
        `ModelError`."""
        self._hop = config.hop_length
        self._has_speakers = bool(config.speakers)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_cpu_mem_arena = False  # It would keep the longest sentence's memory.
        options.log_severity_level = 4
        try:
            content = path.read_bytes()
            graph = read_graph(content)
            if len(graph.outputs) == 1 and graph.durations_output is not None:
                content = with_output(content, graph.durations_output)
            providers = ["CPUExecutionProvider"]
            self._session = onnxruntime.InferenceSession(content, options, providers=providers)
        except Exception as error:
            raise ModelError(f"the voice {path} cannot be loaded ({_one_line(error)}): {_REMEDY}") from error

    def speak(self, ids: Sequence[int], scales: Scales, speaker: int, run: CancellableRun) -> NetworkOutput:
        """Synthesize one sentence, faster than real time. Raises `ModelError`."""
        inputs = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([scales.noise, scales.length, scales.length_noise], np.float32),
        }
        if self._has_speakers:
            inputs[_SPEAKER] = np.array([speaker], np.int64)
        try:
            results = self._session.run(None, inputs, run.options)
        except Exception as error:
            raise ModelError(f"the voice failed: {_one_line(error)}") from error
        samples = np.asarray(results[0], np.float32).reshape(-1)
        return NetworkOutput(samples, self._samples_of_ids(results[1:], len(ids), len(samples)))

    def _samples_of_ids(self, more: Sequence[Any], count: int, samples: int) -> NDArray[np.int64] | None:
        """Samples of each id, from the durations in frames; None for durations that do not fit the audio."""
        if not more or np.size(more[0]) != count:
            return None
        lengths = (np.asarray(more[0], np.float64).reshape(-1) * self._hop).astype(np.int64)
        return lengths if abs(int(lengths.sum()) - samples) <= self._hop else None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
