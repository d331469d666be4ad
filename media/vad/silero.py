"""Voice activity detection of all calls at once: Silero's model, batched, behind two gates that cost next to nothing.

While a caller speaks and a little longer, every window (32 ms) goes to the model; it bridges the gaps between sounds.
Otherwise a window must stand out of the call's own noise and webrtcvad must take it for speech.
The model is recurrent: after a gap it first runs the windows just before.
"""

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
"""Sound before each window that the model sees with it."""
FIRST_WINDOWS: Final = 16
"""The model hears the beginning of every call, so that its memory is of this line's silence and noise. (After a gap it
goes on from there: that halves the error against a model that heard everything, compared with an empty memory.)"""
WARM_UP_WINDOWS: Final = 2
"""After a gap the model runs so many windows before the one that counts."""
HANGOVER_WINDOWS: Final = 6
"""So many windows after the last sign of speech go to the model, whatever they sound like."""
HANGOVER_THRESHOLD: Final = 0.15
"""A probability that is a sign of speech."""
_STATE: Final = 128
_WEBRTC_MS: Final = 30
_WEBRTC_MODE: Final = 1
"""0..3; 1 lets nearly all speech through and most noise too: the model decides."""

Probabilities = NDArray[np.float32]


def silero_path() -> Path:
    """Where the installed `silero-vad` package keeps its ONNX file. The package itself is not imported: it loads torch.
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
        """Load the file. Raises `StartupError` when it is no model."""
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
    """The gates and the model's memory for all rows."""

    def __init__(self, rows: int, model: SileroModel) -> None:
        self._model = model
        self._state = np.zeros((2, rows, _STATE), np.float32)
        self._missed = np.zeros(rows, np.int32)  # windows since the model last ran
        self._hangover = np.zeros(rows, np.int32)  # windows that go to the model without a look at them
        self._webrtc: list[webrtcvad.Vad | None] = [None] * rows
        self.windows_run = 0
        """Windows that went to the model."""
        self.windows_skipped = 0
        """Windows that the gates settled."""

    def open(self, row: int) -> None:
        """A new call begins in a row."""
        self._state[:, row] = 0.0
        self._missed[row] = 0
        self._hangover[row] = FIRST_WINDOWS
        self._webrtc[row] = webrtcvad.Vad(_WEBRTC_MODE)

    def detect(
        self, history: AudioHistory, levels: LevelMeter, rows: Rows, rate: int, talking: NDArray[np.bool_]
    ) -> Probabilities:
        """The probability of speech in the next window of each of `rows` (all at `rate` Hz, a whole window waits behind
        their VAD cursor): `float32[len(rows)]`. `talking` says, for each of them, whether speech is open."""
        start = history.cursor[rows, Cursor.VAD]
        behind_ms = (history.cursor[rows, Cursor.LEVEL] - start) * (1000 / rate)
        sounding = levels.below_gate_ms[rows] < behind_ms
        wanted = talking | (self._hangover[rows] > 0)
        for i in np.flatnonzero(sounding & ~wanted):
            wanted[i] = self._passes_webrtc(history, int(rows[i]), int(start[i]), rate)
        p = np.zeros(len(rows), np.float32)
        chosen = np.flatnonzero(wanted)
        if len(chosen):
            p[chosen] = self._run(history, rows[chosen], start[chosen], rate)
        self._remember(rows, wanted, p)
        return p

    def _passes_webrtc(self, history: AudioHistory, row: int, start: int, rate: int) -> bool:
        webrtc = self._webrtc[row]
        if webrtc is None:
            return True
        behind = start + WINDOW_MS * rate // 1000
        frame = history.rx_audio[row, behind - _WEBRTC_MS * rate // 1000 : behind]
        return bool(webrtc.is_speech(frame.tobytes(), rate))

    def _run(self, history: AudioHistory, rows: Rows, start: NDArray[np.int64], rate: int) -> Probabilities:
        """Run the model on a window of each of `rows`, after the windows that it missed before."""
        missed = self._missed[rows]
        for back in range(WARM_UP_WINDOWS, 0, -1):
            late = missed >= back
            if late.any():
                self._step(history, rows[late], start[late] - back * (WINDOW_MS * rate // 1000), rate)
        return self._step(history, rows, start, rate)

    def _step(self, history: AudioHistory, rows: Rows, start: NDArray[np.int64], rate: int) -> Probabilities:
        context, window = CONTEXT_MS * rate // 1000, WINDOW_MS * rate // 1000
        sound = history.gather(rows, start - context, context + window)
        p, after = self._model.run(sound, self._state[:, rows], rate)
        self._state[:, rows] = after
        self.windows_run += len(rows)
        return p

    def _remember(self, rows: Rows, ran: NDArray[np.bool_], p: Probabilities) -> None:
        self._missed[rows] = np.where(ran, 0, self._missed[rows] + 1)
        cooled = np.maximum(self._hangover[rows] - 1, 0)
        self._hangover[rows] = np.where(p >= HANGOVER_THRESHOLD, np.maximum(cooled, HANGOVER_WINDOWS), cooled)
        self.windows_skipped += int(len(rows) - np.count_nonzero(ran))
