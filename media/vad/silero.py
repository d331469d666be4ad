"""Voice activity detection of all calls at once: Silero's model, batched, behind two cheap gates.

While a caller speaks and during a hangover, every window (32 ms) goes to the model, which bridges the gaps between
sounds. Otherwise a window must stand out of the call's own noise and webrtcvad must classify it as speech. The model is
recurrent: after a gap it first runs the windows just before."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
import webrtcvad
from numpy.typing import NDArray

from config.errors import StartupError
from media.audio_history import AudioHistory, Cursor, Rows
from media.audio_port import Samples
from media.onnx import onnxruntime
from media.vad.energy import LevelMeter

WINDOW_MS: Final = 32
CONTEXT_MS: Final = 4
"""Audio before each window that is a part of the model's input."""
INITIAL_WINDOWS: Final = 16
"""Windows at the beginning of every call that all go to the model, so that its state is that of this line's silence and
noise. (After a gap it continues from there: compared with an empty state, that halves the error against a model that
ran on everything.)"""
WARM_UP_WINDOWS: Final = 2
"""Windows that the model runs after a gap before the one that counts."""
HANGOVER_WINDOWS: Final = 6
"""Windows after the last sign of speech that all go to the model."""
HANGOVER_THRESHOLD: Final = 0.15
"""Probability that counts as a sign of speech."""
_STATE: Final = 128
_WEBRTC_MS: Final = 30
_WEBRTC_MODE: Final = 1
"""Aggressiveness 0..3; 1 passes nearly all speech and most noise too: the model decides."""

Probabilities = NDArray[np.float32]


def silero_path() -> Path:
    """The ONNX file of the installed `silero-vad` package. The package itself is not imported, because it loads torch.
    Raises `StartupError`."""
    spec = find_spec("silero_vad")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        path = Path(folder) / "data" / "silero_vad.onnx"
        if path.is_file():
            return path
    raise StartupError("The voice activity model is missing (silero_vad/data/silero_vad.onnx): run `make setup` again.")


class SileroModel:
    """The network. https://github.com/snakers4/silero-vad, version 6: 8 and 16 kHz, 32 ms a window, LSTM state."""

    def __init__(self, path: Path) -> None:
        """Load the file. Raises `StartupError` when it is not a model."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_mem_pattern = False  # batches differ from tick to tick
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise StartupError(f"The voice activity model {path} cannot be loaded: {error}") from error
        self._rates = {rate: np.array(rate, np.int64) for rate in (8000, 16000)}

    def run(self, windows: Samples, state: NDArray[np.float32], rate: int) -> tuple[Probabilities, NDArray[np.float32]]:
        """`int16[n, context + window]`, `float32[2, n, 128]` -> probabilities `float32[n]` and the new state."""
        sound = windows.astype(np.float32) * np.float32(1 / 32768)
        p, after = self._session.run(None, {"input": sound, "state": state, "sr": self._rates[rate]})
        return p[:, 0], after


class VoiceActivityDetector:
    """The gates and the model's state for all rows."""

    def __init__(self, rows: int, model: SileroModel) -> None:
        self._model = model
        self._state = np.zeros((2, rows, _STATE), np.float32)
        self._skipped = np.zeros(rows, np.int32)  # windows since the model last ran
        self._hangover = np.zeros(rows, np.int32)  # windows that go to the model without a gate
        self._webrtc: list[webrtcvad.Vad | None] = [None] * rows
        self.windows_run = 0
        """Windows that the model judged."""
        self.windows_skipped = 0
        """Windows that the gates judged."""

    def open(self, row: int) -> None:
        """Begin a call in a row."""
        self._state[:, row] = 0.0
        self._skipped[row] = 0
        self._hangover[row] = INITIAL_WINDOWS
        self._webrtc[row] = webrtcvad.Vad(_WEBRTC_MODE)

    def detect(
        self, history: AudioHistory, levels: LevelMeter, rows: Rows, rate: int, caller_speaking: NDArray[np.bool_]
    ) -> Probabilities:
        """The probability of speech in the next window of each of `rows` (all at `rate` Hz, with a whole window after
        their VAD cursor): `float32[len(rows)]`. `caller_speaking`: for each of them whether speech is open."""
        start = history.cursor[rows, Cursor.VAD]
        behind_ms = (history.cursor[rows, Cursor.LEVEL] - start) * (1000 / rate)
        sounding = levels.below_gate_ms[rows] < behind_ms
        selected = caller_speaking | (self._hangover[rows] > 0)
        for i in np.flatnonzero(sounding & ~selected):
            selected[i] = self._passes_webrtc(history, int(rows[i]), int(start[i]), rate)
        p = np.zeros(len(rows), np.float32)
        indices = np.flatnonzero(selected)
        if len(indices):
            p[indices] = self._run(history, rows[indices], start[indices], rate)
        self._update_gates(rows, selected, p)
        return p

    def _passes_webrtc(self, history: AudioHistory, row: int, start: int, rate: int) -> bool:
        webrtc = self._webrtc[row]
        if webrtc is None:
            return True
        end = start + WINDOW_MS * rate // 1000
        frame = history.rx_audio[row, end - _WEBRTC_MS * rate // 1000 : end]
        return bool(webrtc.is_speech(frame.tobytes(), rate))

    def _run(self, history: AudioHistory, rows: Rows, start: NDArray[np.int64], rate: int) -> Probabilities:
        """Run the model on a window of each of `rows`, after up to WARM_UP_WINDOWS skipped windows before it."""
        skipped_count = self._skipped[rows]
        for back in range(WARM_UP_WINDOWS, 0, -1):
            skipped = skipped_count >= back
            if skipped.any():
                self._step(history, rows[skipped], start[skipped] - back * (WINDOW_MS * rate // 1000), rate)
        return self._step(history, rows, start, rate)

    def _step(self, history: AudioHistory, rows: Rows, start: NDArray[np.int64], rate: int) -> Probabilities:
        context, window = CONTEXT_MS * rate // 1000, WINDOW_MS * rate // 1000
        sound = history.gather(rows, start - context, context + window)
        p, after = self._model.run(sound, self._state[:, rows], rate)
        self._state[:, rows] = after
        self.windows_run += len(rows)
        return p

    def _update_gates(self, rows: Rows, ran: NDArray[np.bool_], p: Probabilities) -> None:
        self._skipped[rows] = np.where(ran, 0, self._skipped[rows] + 1)
        decayed = np.maximum(self._hangover[rows] - 1, 0)
        self._hangover[rows] = np.where(p >= HANGOVER_THRESHOLD, np.maximum(decayed, HANGOVER_WINDOWS), decayed)
        self.windows_skipped += int(len(rows) - np.count_nonzero(ran))
